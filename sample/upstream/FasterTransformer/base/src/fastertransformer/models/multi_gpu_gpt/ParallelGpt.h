#pragma once

#include <memory>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptWeight.h"

namespace fastertransformer {

// What follows a prompt.
struct Generation {
    std::vector<uint32_t> tokens;  // the end token is the last one, if it came
    std::vector<float> log_probs;  // of each token
};

// A language model that looks at the last token alone:
//     x = wte[last];  for each layer: x = x + x W;  logits = lm_head x;  next = the lowest of the best tokens
// Without weights: logits[token] = -((token - (5 * last + 7)) mod vocab_size),
//     so next = (5 * last + 7) mod vocab_size.
class ParallelGpt {
  public:
    // `on_gpu`: compute the logits on the current CUDA device. Throws std::runtime_error where that fails.
    ParallelGpt(std::shared_ptr<const ParallelGptWeight> weight, bool on_gpu);
    ~ParallelGpt();

    // Greedy continuation of `last` by at most `length` tokens; beam k starts with the k-th best token.
    // Throws std::invalid_argument when `last` is no token, or there are fewer tokens than beams.
    std::vector<Generation> generate(
        uint32_t last, size_t length, uint32_t end_id, size_t beam_width) const;

    const ParallelGptWeight& weight() const { return *weight_; }

  private:
    struct Device;

    std::vector<float> logits(uint32_t last) const;

    std::shared_ptr<const ParallelGptWeight> weight_;
    std::unique_ptr<Device> device_;
};

}  // namespace fastertransformer

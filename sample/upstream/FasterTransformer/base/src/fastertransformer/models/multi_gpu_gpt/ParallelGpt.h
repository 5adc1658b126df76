#pragma once

#include <memory>

#include "src/fastertransformer/layers/DynamicDecodeLayer.h"
#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptWeight.h"

namespace fastertransformer {

// What follows a prompt; the end token is the last one, if it came.
using Generation = std::vector<Choice>;

// A language model that looks at the last token alone:
//     x = wte[last];  for each layer: x = x + x W;  logits = lm_head x
// Without weights: logits[token] = -((token - (5 * last + 7)) mod vocab_size),
//     so the best is (5 * last + 7) mod vocab_size.
class ParallelGpt {
  public:
    // `on_gpu`: compute the logits on the current CUDA device. Throws std::runtime_error where that fails.
    ParallelGpt(std::shared_ptr<const ParallelGptWeight> weight, bool on_gpu);
    ~ParallelGpt();

    // Continuations of `last` by at most `length` tokens, one for each beam.
    // Throws std::invalid_argument when `last` is no token, or there are fewer tokens than beams.
    std::vector<Generation> generate(
        uint32_t last, size_t length, uint32_t end_id, const DecodingParam& param = {}) const;

    const ParallelGptWeight& weight() const { return *weight_; }

  private:
    struct Device;

    std::vector<float> logits(uint32_t last) const;

    std::shared_ptr<const ParallelGptWeight> weight_;
    std::unique_ptr<Device> device_;
};

}  // namespace fastertransformer

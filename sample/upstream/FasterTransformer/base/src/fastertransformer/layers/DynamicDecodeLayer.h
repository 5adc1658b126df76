#pragma once

#include <cstddef>
#include <cstdint>

#include <random>
#include <vector>

namespace fastertransformer {

using Word = std::vector<uint32_t>;

// How the tokens of a row are chosen: greedily, unless told otherwise.
struct DecodingParam {
    size_t beam_width = 1;     // several beams do not sample
    uint32_t top_k = 0;        // choose among this many best tokens; 0: by top_p alone, without top_p the best
    float top_p = 0;           // and stay within this share of their probability; 0: of all of it
    float temperature = 1;     // divides the logits
    uint64_t random_seed = 0;  // same seed, same answer
    std::vector<Word> stop_words;
    std::vector<Word> bad_words;
    std::vector<uint32_t> context;  // what stands before the answer: a word may begin there
};

struct Choice {
    uint32_t token;
    float log_prob;         // among all tokens
    float output_log_prob;  // among the top_k, so 0 for a greedy choice, as FasterTransformer has it
};

// Chooses the tokens of one beam of one row, step by step. Of equally good tokens the lowest comes first.
class DynamicDecodeLayer {
  public:
    // Beam k starts with the k-th best token and goes on greedily.
    DynamicDecodeLayer(const DecodingParam& param, uint32_t end_id, size_t beam);

    Choice forward(std::vector<float> logits);

    // Whether the end token or the last token of a stop word was chosen.
    bool finished() const { return finished_; }

  private:
    bool endsWith(const Word& word, size_t size) const;
    void banBadWords(std::vector<float>* logits) const;
    size_t candidates(size_t vocab_size) const;
    size_t draw(const std::vector<double>& probabilities, double sum);

    const DecodingParam& param_;
    const uint32_t end_id_;
    size_t beam_;  // of the first step, 0 from then on
    std::vector<uint32_t> tokens_;
    std::mt19937_64 random_;
    bool finished_ = false;
};

}  // namespace fastertransformer

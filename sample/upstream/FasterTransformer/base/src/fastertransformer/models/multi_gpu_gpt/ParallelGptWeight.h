#pragma once

#include <cstddef>
#include <cstdint>

#include <string>
#include <vector>

namespace fastertransformer {

// The weights of a model, all ranks together, as 32-bit floats in the CPU's memory.
struct ParallelGptWeight {
    std::string section = "gpt";  // of config.ini: gpt, gptj, gptneox or t5
    bool built_in = true;         // no weights: the built-in rule
    size_t vocab_size = 258;      // 256 bytes, start, end
    size_t hidden_size = 0;
    size_t max_length = 1024;  // of prompt and answer together, tokens
    uint32_t end_id = 257;
    int tensor_para_size = 1;

    std::vector<float> wte;                  // [vocab_size, hidden_size]
    std::vector<std::vector<float>> layers;  // each [hidden_size, hidden_size]
    std::vector<float> lm_head;              // [vocab_size, hidden_size]

    // Reads a folder that a converter wrote.
    // Throws std::runtime_error when something is missing, of the wrong size or for another number of ranks.
    static ParallelGptWeight load(const std::string& folder, int tensor_para_size);
};

}  // namespace fastertransformer

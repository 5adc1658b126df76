#pragma once

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptWeight.h"

namespace fastertransformer {

// Says with which experts it was made.
template<typename T>
struct ParallelGpt {
    template<typename... Others>
    ParallelGpt(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t expert_num, size_t moe_k,
                std::vector<int64_t> moe_layer_index, Others&&...)
    {
        std::printf("experts %zu %zu", expert_num, moe_k);
        for (int64_t layer : moe_layer_index) {
            std::printf(" %d", static_cast<int>(layer));
        }
        std::printf("\n");
    }
};

}  // namespace fastertransformer

#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace fastertransformer {

// Throws std::runtime_error with CUDA's own words.
inline void check(cudaError_t result, const char* what)
{
    if (result != cudaSuccess) {
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
    }
}

}  // namespace fastertransformer

#define CHECK_CUDA(call) fastertransformer::check((call), #call)

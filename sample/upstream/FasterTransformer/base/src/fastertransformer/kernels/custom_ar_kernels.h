#pragma once

#include <cuda_runtime_api.h>

namespace fastertransformer {

// x[column] += sum over ranks of partials[rank][column]. `ready` is one word on the device, for the barrier.
void invokeAllReduce(
    float* x, const float* partials, int size, int ranks, unsigned* ready, cudaStream_t stream);

}  // namespace fastertransformer

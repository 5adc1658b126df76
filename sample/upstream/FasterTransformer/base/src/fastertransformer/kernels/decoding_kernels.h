#pragma once

#include <cuda_runtime_api.h>

namespace fastertransformer {

// partials[rank][column] = sum over the rank's rows of x[row] * weight[row][column];
// `weight` is [size, size], and rank r has rows r * size / ranks onwards.
void invokePartialProducts(
    float* partials, const float* x, const float* weight, int size, int ranks, cudaStream_t stream);

// logits[token] = sum over columns of x[column] * lm_head[token][column].
void invokeLogits(
    float* logits, const float* x, const float* lm_head, int vocab_size, int size, cudaStream_t stream);

}  // namespace fastertransformer

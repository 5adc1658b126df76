#include "src/fastertransformer/kernels/decoding_kernels.h"

#include "cutlass/cutlass.h"
#include "cutlass/util/reference.h"

namespace fastertransformer {

namespace {

constexpr int kThreads = 128;

__global__ void partialProducts(float* partials, const float* x, const float* weight, int size, int ranks)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int rank = blockIdx.y;
    const int rows = size / ranks;
    const cutlass::RowMajor at{size};
    if (column < size) {
        float sum = 0;
        for (int row = rank * rows; row < (rank + 1) * rows; ++row) {
            sum += x[row] * weight[at(row, column)];
        }
        partials[at(rank, column)] = sum;
    }
}

__global__ void tokenLogits(float* logits, const float* x, const float* lm_head, int vocab_size, int size)
{
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    const cutlass::RowMajor at{size};
    if (token < vocab_size) {
        float sum = 0;
        for (int column = 0; column < size; ++column) {
            sum += x[column] * lm_head[at(token, column)];
        }
        logits[token] = sum;
    }
}

}  // namespace

void invokePartialProducts(
    float* partials, const float* x, const float* weight, int size, int ranks, cudaStream_t stream)
{
    const dim3 grid(cutlass::reference::divide_up(size, kThreads), ranks);
    partialProducts<<<grid, kThreads, 0, stream>>>(partials, x, weight, size, ranks);
}

void invokeLogits(
    float* logits, const float* x, const float* lm_head, int vocab_size, int size, cudaStream_t stream)
{
    const int grid = cutlass::reference::divide_up(vocab_size, kThreads);
    tokenLogits<<<grid, kThreads, 0, stream>>>(logits, x, lm_head, vocab_size, size);
}

}  // namespace fastertransformer

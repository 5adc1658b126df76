// Where a kernel that a patch adds puts what cross attention reads: `kernel.inc` is the kernel, run here thread by thread.
//
// Attention reads key t of a row's head at [row, head, chunk, t, x], and value t at [row, head, t, size]; of both, x numbers
// of 16 bytes are a chunk (FT v5.3 decoder_masked_multihead_attention_template.hpp). What lies behind a row's tokens, up to
// the capacity of its slot, is another's or nobody's, and stays as it is.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

struct Coordinates {
    int x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
static Coordinates blockIdx, threadIdx, blockDim;

#define __global__
#define __device__
#include "kernel.inc"

constexpr int kThreads = 256, kUntouched = -7;

template <typename T>
void Try(std::mt19937* random, const bool of_keys, const bool has_bias)
{
    constexpr int x = 16 / sizeof(T);
    const auto below = [random](const int most) { return static_cast<int>((*random)() % most); };
    const int batch = 1 + below(3), heads = 1 + below(3), size = x * (1 + below(6)), length = 1 + below(9);
    const int capacity = length + below(5);
    std::vector<T> src(batch * length * heads * size), bias(heads * size);
    std::vector<T> dst(batch * capacity * heads * size, kUntouched);
    for (auto* values : {&src, &bias}) {
        for (T& value : *values) {
            value = static_cast<T>(below(1000));
        }
    }
    blockDim = {kThreads, 1};
    const int blocks = (length * heads * size / x + kThreads - 1) / kThreads;
    for (blockIdx.y = 0; blockIdx.y < batch; ++blockIdx.y) {
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
            for (threadIdx.x = 0; threadIdx.x < kThreads; ++threadIdx.x) {
                fill_memory_cache<T>(
                    dst.data(), src.data(), has_bias ? bias.data() : nullptr, heads, size, length, capacity, of_keys);
            }
        }
    }
    for (int b = 0; b < batch; ++b) {
        for (int h = 0; h < heads; ++h) {
            for (int t = 0; t < capacity; ++t) {
                for (int d = 0; d < size; ++d) {
                    const size_t row = b * heads + h;
                    const size_t at = of_keys ? ((row * (size / x) + d / x) * capacity + t) * x + d % x
                                              : (row * capacity + t) * size + d;
                    const T added = has_bias ? bias[h * size + d] : static_cast<T>(0);
                    const T expected =
                        t < length ? static_cast<T>(src[((b * length + t) * heads + h) * size + d] + added) : kUntouched;
                    if (dst[at] != expected) {
                        std::fprintf(stderr, "row %d, head %d, token %d, number %d\n", b, h, t, d);
                        std::exit(1);
                    }
                }
            }
        }
    }
}

int main()
{
    std::mt19937 random(1);
    for (int i = 0; i < 200; ++i) {
        Try<float>(&random, i % 2, i % 4 < 2);
        Try<int16_t>(&random, i % 2, i % 4 < 2);
    }
    return 0;
}

// The slopes that FasterTransformer's kernel gives its heads, one line for each number of heads up to the argument.
// SOURCE holds the kernel and what it calls, cut out of gen_relative_pos_bias.cu.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define __host__
#define __device__
#define __global__ static

struct {
  unsigned x = 0;
} threadIdx;
struct {
  unsigned x = 1;
} blockDim;

#include SOURCE

int main(int, char** arguments)
{
  for (size_t heads = 1; heads <= std::strtoul(arguments[1], nullptr, 10); ++heads) {
    std::vector<float> slopes(heads);
    generate_alibi_slopes(slopes.data(), heads);
    for (float slope : slopes) {
      std::printf("%.9g ", slope);
    }
    std::printf("\n");
  }
}

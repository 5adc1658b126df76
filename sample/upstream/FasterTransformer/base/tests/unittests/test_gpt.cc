#include <gtest/gtest.h>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"

namespace ft = fastertransformer;

TEST(ParallelGpt, FollowsTheBuiltInRule)
{
    const ft::ParallelGpt gpt(std::make_shared<const ft::ParallelGptWeight>(), false);
    EXPECT_EQ(gpt.generate(72, 2, 257, 1)[0].tokens, (std::vector<uint32_t>{109, 36}));
}

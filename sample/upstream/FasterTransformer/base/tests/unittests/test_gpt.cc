#include <gtest/gtest.h>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"

namespace ft = fastertransformer;

TEST(ParallelGpt, FollowsTheBuiltInRule)
{
    const ft::ParallelGpt gpt(std::make_shared<const ft::ParallelGptWeight>(), false);
    const ft::Generation found = gpt.generate(72, 2, 257)[0];
    EXPECT_EQ(found[0].token, 109u);
    EXPECT_EQ(found[1].token, 36u);
}

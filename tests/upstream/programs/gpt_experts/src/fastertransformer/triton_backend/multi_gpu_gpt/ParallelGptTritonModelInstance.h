#pragma once

#include "src/fastertransformer/triton_backend/multi_gpu_gpt/ParallelGptTritonModel.h"

template<typename T>
struct ParallelGptTritonModelInstance: AbstractTransformerModelInstance {
    template<typename... Others>
    explicit ParallelGptTritonModelInstance(Others&&...) {}
};

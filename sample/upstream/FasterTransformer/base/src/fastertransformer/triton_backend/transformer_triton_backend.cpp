#include "src/fastertransformer/triton_backend/transformer_triton_backend.hpp"

#include <stdexcept>

#include "src/fastertransformer/triton_backend/multi_gpu_gpt/ParallelGptTritonModel.h"

std::unique_ptr<AbstractTransformerModel> AbstractTransformerModel::create(
    const std::string& model_type, const ModelOptions& options)
{
    for (const char* known : {"GPT", "GPT-J", "GPT-NeoX", "T5"}) {
        if (model_type == known) {
            return std::unique_ptr<AbstractTransformerModel>(new ParallelGptTritonModel(model_type, options));
        }
    }
    throw std::runtime_error("unknown model_type '" + model_type + "'");
}

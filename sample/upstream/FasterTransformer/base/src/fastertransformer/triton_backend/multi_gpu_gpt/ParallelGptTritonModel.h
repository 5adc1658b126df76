#pragma once

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"
#include "src/fastertransformer/triton_backend/transformer_triton_backend.hpp"

// All families run on this one. T5 differs: other names of tensors, the prompt is not repeated, no streaming.
class ParallelGptTritonModel: public AbstractTransformerModel {
  public:
    ParallelGptTritonModel(const std::string& model_type, const ModelOptions& options);

    triton::TensorMap forward(
        const triton::TensorMap& inputs, const TokenGenerated& token_generated) const override;
    std::string toString() const override;

  private:
    std::string model_type_;
    ModelOptions options_;
    bool encoder_decoder_;
    fastertransformer::ParallelGpt gpt_;
};

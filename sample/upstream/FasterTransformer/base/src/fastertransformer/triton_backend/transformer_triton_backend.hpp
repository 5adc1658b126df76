// What a server's backend sees of a model: named tensors in, named tensors out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#ifdef USE_TRITONSERVER_DATATYPE
#include "triton/core/tritonserver.h"
#else
// Triton's data types, for builds without its headers.
enum TRITONSERVER_DataType {
    TRITONSERVER_TYPE_BOOL = 1,
    TRITONSERVER_TYPE_UINT32 = 4,
    TRITONSERVER_TYPE_INT32 = 8,
    TRITONSERVER_TYPE_FP32 = 11
};
#endif

namespace triton {

// A tensor in the CPU's memory.
struct Tensor {
    TRITONSERVER_DataType type;
    std::vector<int64_t> shape;
    std::vector<char> data;
};

using TensorMap = std::unordered_map<std::string, Tensor>;

}  // namespace triton

// Called with outputs that are not complete yet; may be empty.
using TokenGenerated = std::function<void(const triton::TensorMap& outputs)>;

struct ModelOptions {
    std::string checkpoint;  // folder with config.ini; empty: the built-in rule
    int tensor_para_size = 1;
    bool on_gpu = false;
};

class AbstractTransformerModel {
  public:
    // `model_type`: GPT, GPT-J, GPT-NeoX or T5. Throws std::runtime_error when the model can't be loaded.
    static std::unique_ptr<AbstractTransformerModel> create(
        const std::string& model_type, const ModelOptions& options);

    virtual ~AbstractTransformerModel() = default;

    // `token_generated` gets the outputs so far after each token but the last, if the family can stream.
    // Throws std::invalid_argument when a tensor is missing or holds what the model can't take.
    virtual triton::TensorMap forward(
        const triton::TensorMap& inputs, const TokenGenerated& token_generated) const = 0;

    // One line about the model and the libraries it runs on.
    virtual std::string toString() const = 0;
};

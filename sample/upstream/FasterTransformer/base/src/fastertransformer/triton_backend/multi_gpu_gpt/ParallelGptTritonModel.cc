#include "src/fastertransformer/triton_backend/multi_gpu_gpt/ParallelGptTritonModel.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "src/fastertransformer/utils/mpi_utils.h"
#include "src/fastertransformer/utils/nccl_utils.h"
#include "src/fastertransformer/utils/version.h"

namespace ft = fastertransformer;

namespace {

template<typename T>
std::vector<T> values(const triton::Tensor& tensor)
{
    std::vector<T> result(tensor.data.size() / sizeof(T));
    std::memcpy(result.data(), tensor.data.data(), result.size() * sizeof(T));
    return result;
}

template<typename T>
triton::Tensor tensor(
    TRITONSERVER_DataType type, const std::vector<int64_t>& shape, const std::vector<T>& elements)
{
    const char* bytes = reinterpret_cast<const char*>(elements.data());
    return {type, shape, {bytes, bytes + elements.size() * sizeof(T)}};
}

std::vector<uint32_t> required(const triton::TensorMap& inputs, const std::string& name)
{
    const auto found = inputs.find(name);
    if (found == inputs.end() || found->second.data.empty()) {
        throw std::invalid_argument("input " + name + " is missing or empty");
    }
    return values<uint32_t>(found->second);
}

// The first element of an optional input.
template<typename T>
T option(const triton::TensorMap& inputs, const std::string& name, T otherwise)
{
    const auto found = inputs.find(name);
    return found == inputs.end() || found->second.data.size() < sizeof(T) ? otherwise
                                                                         : values<T>(found->second)[0];
}

// GPT-NeoX -> gptneox
std::string sectionOf(const std::string& model_type)
{
    std::string section;
    for (const char letter : model_type) {
        if (letter != '-') {
            section += static_cast<char>(std::tolower(letter));
        }
    }
    return section;
}

std::shared_ptr<const ft::ParallelGptWeight> loadWeight(
    const std::string& model_type, const ModelOptions& options)
{
    if (options.checkpoint.empty()) {
        return std::make_shared<const ft::ParallelGptWeight>();
    }
    const auto weight = std::make_shared<const ft::ParallelGptWeight>(
        ft::ParallelGptWeight::load(options.checkpoint, options.tensor_para_size));
    if (weight->section != sectionOf(model_type)) {
        throw std::runtime_error(
            options.checkpoint + " holds a model of type [" + weight->section + "], not " + model_type);
    }
    return weight;
}

}  // namespace

ParallelGptTritonModel::ParallelGptTritonModel(const std::string& model_type, const ModelOptions& options)
    : model_type_(model_type),
      options_(options),
      encoder_decoder_(model_type == "T5"),
      gpt_(loadWeight(model_type, options), options.on_gpu)
{
}

std::string ParallelGptTritonModel::toString() const
{
    return "FasterTransformer miniature " FT_VERSION ": " + model_type_ + " from "
           + (options_.checkpoint.empty() ? "the built-in rule" : options_.checkpoint) + " on the "
           + (options_.on_gpu ? "GPU" : "CPU") + "; " + ft::mpi::libraryVersion() + ", "
           + ft::ncclLibraryVersion();
}

triton::TensorMap ParallelGptTritonModel::forward(const triton::TensorMap& inputs) const
{
    const std::vector<uint32_t> input_ids = required(inputs, "input_ids");
    const std::vector<uint32_t> lengths =
        required(inputs, encoder_decoder_ ? "sequence_length" : "input_lengths");
    const std::vector<uint32_t> output_lengths =
        required(inputs, encoder_decoder_ ? "max_output_len" : "request_output_len");
    const size_t batch = lengths.size();
    const size_t width = input_ids.size() / batch;
    const size_t output_length = *std::max_element(output_lengths.begin(), output_lengths.end());
    const size_t beam_width = option<uint32_t>(inputs, "beam_width", 1);
    const uint32_t end_id = option<uint32_t>(inputs, "end_id", gpt_.weight().end_id);

    if (width * batch != input_ids.size()) {
        throw std::invalid_argument("input_ids and the lengths differ in their batch size");
    }
    if (width + output_length > gpt_.weight().max_length) {
        throw std::invalid_argument(
            std::to_string(width) + " tokens in and " + std::to_string(output_length) + " out are more than "
            + std::to_string(gpt_.weight().max_length));
    }
    for (const uint32_t length : lengths) {
        if (length == 0 || length > width) {
            throw std::invalid_argument(
                "length " + std::to_string(length) + " of a prompt in a row of " + std::to_string(width));
        }
    }

    const size_t total = encoder_decoder_ ? output_length : width + output_length;
    std::vector<uint32_t> output_ids(batch * beam_width * total, end_id);
    std::vector<uint32_t> sequence_lengths(batch * beam_width);
    std::vector<uint32_t> input_lengths(batch * beam_width);
    std::vector<float> cum_log_probs(batch * beam_width);
    std::vector<float> output_log_probs(batch * beam_width * output_length);
    for (size_t row = 0; row < batch; ++row) {
        const auto prompt = input_ids.begin() + static_cast<std::ptrdiff_t>(row * width);
        const uint32_t echoed = encoder_decoder_ ? 0 : lengths[row];
        const std::vector<ft::Generation> beams =
            gpt_.generate(prompt[lengths[row] - 1], output_length, end_id, beam_width);
        for (size_t beam = 0; beam < beam_width; ++beam) {
            const size_t at = row * beam_width + beam;
            const auto output = output_ids.begin() + static_cast<std::ptrdiff_t>(at * total);
            std::copy(prompt, prompt + echoed, output);
            std::copy(beams[beam].tokens.begin(), beams[beam].tokens.end(), output + echoed);
            std::copy(
                beams[beam].log_probs.begin(), beams[beam].log_probs.end(),
                output_log_probs.begin() + static_cast<std::ptrdiff_t>(at * output_length));
            cum_log_probs[at] =
                std::accumulate(beams[beam].log_probs.begin(), beams[beam].log_probs.end(), 0.0f);
            input_lengths[at] = lengths[row];
            sequence_lengths[at] = echoed + static_cast<uint32_t>(beams[beam].tokens.size());
        }
    }

    const int64_t steps = static_cast<int64_t>(output_length);
    const int64_t rows = static_cast<int64_t>(batch);
    const int64_t beams = static_cast<int64_t>(beam_width);
    const auto token_type = encoder_decoder_ ? TRITONSERVER_TYPE_INT32 : TRITONSERVER_TYPE_UINT32;
    triton::TensorMap outputs{
        {"output_ids", tensor(token_type, {rows, beams, static_cast<int64_t>(total)}, output_ids)},
        {"sequence_length", tensor(token_type, {rows, beams}, sequence_lengths)},
        {"response_input_lengths", tensor(TRITONSERVER_TYPE_INT32, {rows, beams}, input_lengths)},
    };
    if (option<uint8_t>(inputs, "is_return_log_probs", 0) != 0) {
        outputs.emplace("cum_log_probs", tensor(TRITONSERVER_TYPE_FP32, {rows, beams}, cum_log_probs));
        outputs.emplace(
            "output_log_probs", tensor(TRITONSERVER_TYPE_FP32, {rows, beams, steps}, output_log_probs));
    }
    return outputs;
}

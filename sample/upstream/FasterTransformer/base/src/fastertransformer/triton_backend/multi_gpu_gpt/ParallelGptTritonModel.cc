#include "src/fastertransformer/triton_backend/multi_gpu_gpt/ParallelGptTritonModel.h"

#include <algorithm>
#include <cctype>
#include <cstring>
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

// The element of an optional input that counts for `row`; a single one counts for all rows.
template<typename T>
T option(const triton::TensorMap& inputs, const std::string& name, size_t row, T otherwise)
{
    const auto found = inputs.find(name);
    if (found == inputs.end() || found->second.data.size() < sizeof(T)) {
        return otherwise;
    }
    const std::vector<T> elements = values<T>(found->second);
    return elements[row < elements.size() ? row : 0];
}

// The words of `row` in an optional input [batch, 2, n]: their tokens one after the other, and where each of
// them ends, followed by -1.
std::vector<ft::Word> words(const triton::TensorMap& inputs, const std::string& name, size_t row)
{
    std::vector<ft::Word> result;
    const auto found = inputs.find(name);
    if (found == inputs.end()) {
        return result;
    }
    const std::vector<int32_t> elements = values<int32_t>(found->second);
    const auto width = static_cast<std::ptrdiff_t>(found->second.shape.back());
    if (elements.size() < (row + 1) * 2 * static_cast<size_t>(width)) {
        throw std::invalid_argument(name + ": not of shape [batch, 2, n]");
    }
    const auto tokens = elements.begin() + static_cast<std::ptrdiff_t>(row) * 2 * width;
    const auto ends = tokens + width;
    std::ptrdiff_t start = 0;
    for (auto end = ends; end != ends + width && *end >= 0; ++end) {
        if (*end <= start || *end > width) {
            throw std::invalid_argument(name + ": a word ends at " + std::to_string(*end));
        }
        result.emplace_back(tokens + start, tokens + *end);
        start = *end;
    }
    return result;
}

ft::DecodingParam decodingParam(const triton::TensorMap& inputs, size_t row, std::vector<uint32_t> context)
{
    ft::DecodingParam param;
    param.beam_width = option<uint32_t>(inputs, "beam_width", 0, 1);
    param.top_k = option<uint32_t>(inputs, "runtime_top_k", row, 0);
    param.top_p = option<float>(inputs, "runtime_top_p", row, 0);
    param.temperature = option<float>(inputs, "temperature", row, 1);
    param.random_seed = option<uint64_t>(inputs, "random_seed", row, 0);
    param.stop_words = words(inputs, "stop_words_list", row);
    param.bad_words = words(inputs, "bad_words_list", row);
    param.context = std::move(context);
    return param;
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

// A row of a request and its answer.
struct Row {
    std::vector<uint32_t> prompt;
    uint32_t end_id;
    std::vector<ft::Generation> beams;
};

struct Shape {
    bool encoder_decoder;  // whose output does not repeat the prompt
    size_t width;          // of input_ids
    size_t output_length;
};

// The outputs after `steps` tokens of each answer.
triton::TensorMap outputs(const std::vector<Row>& rows, const Shape& shape, size_t steps, bool with_log_probs)
{
    const size_t before = shape.encoder_decoder ? 0 : shape.width;
    std::vector<uint32_t> output_ids;
    std::vector<uint32_t> sequence_lengths;
    std::vector<uint32_t> input_lengths;
    std::vector<float> cum_log_probs;
    std::vector<float> output_log_probs;
    for (const Row& row : rows) {
        for (const ft::Generation& beam : row.beams) {
            const size_t size = std::min(steps, beam.size());
            std::vector<uint32_t> tokens(shape.encoder_decoder ? std::vector<uint32_t>() : row.prompt);
            std::vector<float> log_probs;
            float sum = 0;
            for (size_t step = 0; step < size; ++step) {
                tokens.push_back(beam[step].token);
                log_probs.push_back(beam[step].output_log_prob);
                sum += beam[step].log_prob;
            }
            tokens.resize(before + shape.output_length, row.end_id);
            log_probs.resize(shape.output_length);
            output_ids.insert(output_ids.end(), tokens.begin(), tokens.end());
            output_log_probs.insert(output_log_probs.end(), log_probs.begin(), log_probs.end());
            cum_log_probs.push_back(sum);
            input_lengths.push_back(static_cast<uint32_t>(row.prompt.size()));
            // As FasterTransformer counts: a prompt that is shorter than its row counts as the whole row.
            sequence_lengths.push_back(static_cast<uint32_t>(before + size));
        }
    }

    const auto batch = static_cast<int64_t>(rows.size());
    const auto beams = static_cast<int64_t>(rows[0].beams.size());
    const auto length = static_cast<int64_t>(shape.output_length);
    const auto token_type = shape.encoder_decoder ? TRITONSERVER_TYPE_INT32 : TRITONSERVER_TYPE_UINT32;
    triton::TensorMap tensors{
        {"output_ids",
         tensor(token_type, {batch, beams, static_cast<int64_t>(before) + length}, output_ids)},
        {"sequence_length", tensor(token_type, {batch, beams}, sequence_lengths)},
        {"response_input_lengths", tensor(TRITONSERVER_TYPE_INT32, {batch, beams}, input_lengths)},
    };
    if (with_log_probs) {
        tensors.emplace("cum_log_probs", tensor(TRITONSERVER_TYPE_FP32, {batch, beams}, cum_log_probs));
        tensors.emplace(
            "output_log_probs", tensor(TRITONSERVER_TYPE_FP32, {batch, beams, length}, output_log_probs));
    }
    return tensors;
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

triton::TensorMap ParallelGptTritonModel::forward(
    const triton::TensorMap& inputs, const TokenGenerated& token_generated) const
{
    const std::vector<uint32_t> input_ids = required(inputs, "input_ids");
    const std::vector<uint32_t> lengths =
        required(inputs, encoder_decoder_ ? "sequence_length" : "input_lengths");
    const std::vector<uint32_t> output_lengths =
        required(inputs, encoder_decoder_ ? "max_output_len" : "request_output_len");
    const size_t batch = lengths.size();
    const size_t width = input_ids.size() / batch;
    const size_t output_length = *std::max_element(output_lengths.begin(), output_lengths.end());

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

    std::vector<Row> rows;
    size_t steps = 0;
    for (size_t row = 0; row < batch; ++row) {
        const auto prompt = input_ids.begin() + static_cast<std::ptrdiff_t>(row * width);
        const uint32_t last = prompt[lengths[row] - 1];
        const uint32_t end_id = option<uint32_t>(inputs, "end_id", row, gpt_.weight().end_id);
        const std::vector<uint32_t> whole(prompt, prompt + (encoder_decoder_ ? 0 : width));
        std::vector<ft::Generation> beams =
            gpt_.generate(last, output_length, end_id, decodingParam(inputs, row, whole));
        for (const ft::Generation& beam : beams) {
            steps = std::max(steps, beam.size());
        }
        rows.push_back({{prompt, prompt + lengths[row]}, end_id, std::move(beams)});
    }

    const bool log_probs = option<uint8_t>(inputs, "is_return_log_probs", 0, 0) != 0;
    const Shape shape{encoder_decoder_, width, output_length};
    if (token_generated && !encoder_decoder_) {
        for (size_t step = 1; step < steps; ++step) {
            token_generated(outputs(rows, shape, step, log_probs));
        }
    }
    return outputs(rows, shape, steps, log_probs);
}

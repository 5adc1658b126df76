#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptWeight.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "3rdparty/INIReader.h"
#include "src/fastertransformer/utils/cublasMMWrapper.h"

namespace fastertransformer {

namespace {

float halfToFloat(uint16_t half)
{
    const int exponent = (half >> 10) & 0x1f;
    const int fraction = half & 0x3ff;
    float value = 0;
    if (exponent == 0x1f) {
        value = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<float>(fraction), -24);
    } else {
        value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    }
    return (half & 0x8000) != 0 ? -value : value;
}

// Appends the matrix in `file` to `values`.
void append(std::vector<float>* values, const std::string& file, const MatrixShape& shape, bool half)
{
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
        throw std::runtime_error(file + ": can't be read");
    }
    const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    const size_t width = half ? sizeof(uint16_t) : sizeof(float);
    if (bytes.size() != elements(shape) * width) {
        throw std::runtime_error(
            file + ": " + std::to_string(bytes.size()) + " bytes, " + std::to_string(elements(shape) * width)
            + " expected");
    }
    for (size_t at = 0; at < bytes.size(); at += width) {
        float value = 0;
        uint16_t packed = 0;
        std::memcpy(half ? static_cast<void*>(&packed) : &value, &bytes[at], width);
        values->push_back(half ? halfToFloat(packed) : value);
    }
}

std::string knownSection(const INIReader& config, const std::string& file)
{
    for (const char* section : {"gpt", "gptj", "gptneox", "t5"}) {
        if (config.HasSection(section)) {
            return section;
        }
    }
    throw std::runtime_error(file + ": neither [gpt], [gptj], [gptneox] nor [t5]");
}

}  // namespace

ParallelGptWeight ParallelGptWeight::load(const std::string& folder, int tensor_para_size)
{
    const std::string file = folder + "/config.ini";
    const INIReader config(file);
    const std::string section = knownSection(config, file);
    const auto number = [&](const char* key) { return config.GetInteger(section, key); };

    ParallelGptWeight weight;
    weight.section = section;
    weight.built_in = false;
    weight.vocab_size = static_cast<size_t>(number("vocab_size"));
    weight.hidden_size = static_cast<size_t>(number("head_num") * number("size_per_head"));
    weight.max_length = static_cast<size_t>(config.GetInteger(section, "max_pos_seq_len", 1024));
    weight.end_id = static_cast<uint32_t>(number("end_id"));
    weight.tensor_para_size = config.GetInteger(section, "tensor_para_size", 1);
    if (weight.tensor_para_size != tensor_para_size) {
        throw std::runtime_error(
            file + ": converted for " + std::to_string(weight.tensor_para_size) + " GPUs, tensor_para_size is "
            + std::to_string(tensor_para_size));
    }

    const bool half = config.Get(section, "weight_data_type", "fp32") == "fp16";
    const MatrixShape table{{weight.vocab_size, weight.hidden_size}};
    const MatrixShape slice{{weight.hidden_size / static_cast<size_t>(tensor_para_size), weight.hidden_size}};
    append(&weight.wte, folder + "/model.wte.bin", table, half);
    append(&weight.lm_head, folder + "/model.lm_head.weight.bin", table, half);
    for (int layer = 0; layer < number("num_layer"); ++layer) {
        const std::string name =
            folder + "/model.layers." + std::to_string(layer) + ".mlp.dense_4h_to_h.weight.";
        weight.layers.emplace_back();
        for (int rank = 0; rank < tensor_para_size; ++rank) {
            append(&weight.layers.back(), name + std::to_string(rank) + ".bin", slice, half);
        }
    }
    return weight;
}

}  // namespace fastertransformer

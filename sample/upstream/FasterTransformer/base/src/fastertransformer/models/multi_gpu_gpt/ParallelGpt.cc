#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"

#include <algorithm>
#include <numeric>

#include "src/fastertransformer/kernels/custom_ar_kernels.h"
#include "src/fastertransformer/kernels/decoding_kernels.h"
#include "src/fastertransformer/utils/cuda_utils.h"

namespace fastertransformer {

namespace {

// Memory on the CUDA device.
template<typename T>
class Buffer {
  public:
    explicit Buffer(size_t size) { CHECK_CUDA(cudaMalloc(&data_, size * sizeof(T))); }

    explicit Buffer(const std::vector<T>& values) : Buffer(values.size())
    {
        CHECK_CUDA(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }

    Buffer(Buffer&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
    ~Buffer() { cudaFree(data_); }

    T* get() const { return static_cast<T*>(data_); }

  private:
    void* data_ = nullptr;
};

std::vector<float> ruleLogits(uint32_t last, size_t vocab_size)
{
    std::vector<float> logits(vocab_size);
    for (size_t distance = 0; distance < vocab_size; ++distance) {
        logits[(5 * static_cast<size_t>(last) + 7 + distance) % vocab_size] = -static_cast<float>(distance);
    }
    return logits;
}

std::vector<float> weightLogits(uint32_t last, const ParallelGptWeight& weight)
{
    const size_t size = weight.hidden_size;
    std::vector<float> x(&weight.wte[last * size], &weight.wte[last * size] + size);
    for (const std::vector<float>& layer : weight.layers) {
        std::vector<float> sum(x);
        for (size_t row = 0; row < size; ++row) {
            for (size_t column = 0; column < size; ++column) {
                sum[column] += x[row] * layer[row * size + column];
            }
        }
        x.swap(sum);
    }
    std::vector<float> logits(weight.vocab_size);
    for (size_t token = 0; token < weight.vocab_size; ++token) {
        logits[token] = std::inner_product(x.begin(), x.end(), &weight.lm_head[token * size], 0.0f);
    }
    return logits;
}

}  // namespace

struct ParallelGpt::Device {
    explicit Device(const ParallelGptWeight& weight)
        : wte(weight.wte),
          lm_head(weight.lm_head),
          x(weight.hidden_size),
          partials(weight.hidden_size * static_cast<size_t>(weight.tensor_para_size)),
          logits(weight.vocab_size),
          ready(1)
    {
        for (const std::vector<float>& layer : weight.layers) {
            layers.emplace_back(layer);
        }
    }

    Buffer<float> wte, lm_head, x, partials, logits;
    Buffer<unsigned> ready;
    std::vector<Buffer<float>> layers;
};

ParallelGpt::ParallelGpt(std::shared_ptr<const ParallelGptWeight> weight, bool on_gpu)
    : weight_(std::move(weight)), device_(on_gpu && !weight_->built_in ? new Device(*weight_) : nullptr)
{
}

ParallelGpt::~ParallelGpt() = default;

std::vector<float> ParallelGpt::logits(uint32_t last) const
{
    if (weight_->built_in) {
        return ruleLogits(last, weight_->vocab_size);
    }
    if (device_ == nullptr) {
        return weightLogits(last, *weight_);
    }
    const size_t row = weight_->hidden_size;
    const int size = static_cast<int>(row);
    const int ranks = weight_->tensor_para_size;
    const int vocab_size = static_cast<int>(weight_->vocab_size);
    float* const x = device_->x.get();
    CHECK_CUDA(cudaMemcpy(x, device_->wte.get() + last * row, row * sizeof(float), cudaMemcpyDeviceToDevice));
    for (const Buffer<float>& layer : device_->layers) {
        invokePartialProducts(device_->partials.get(), x, layer.get(), size, ranks, nullptr);
        invokeAllReduce(x, device_->partials.get(), size, ranks, device_->ready.get(), nullptr);
    }
    invokeLogits(device_->logits.get(), x, device_->lm_head.get(), vocab_size, size, nullptr);
    CHECK_CUDA(cudaGetLastError());
    std::vector<float> logits(weight_->vocab_size);
    CHECK_CUDA(cudaMemcpy(
        logits.data(), device_->logits.get(), logits.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return logits;
}

std::vector<Generation> ParallelGpt::generate(
    uint32_t last, size_t length, uint32_t end_id, const DecodingParam& param) const
{
    const size_t vocab_size = weight_->vocab_size;
    if (last >= vocab_size) {
        throw std::invalid_argument(
            "token " + std::to_string(last) + " in a vocabulary of " + std::to_string(vocab_size));
    }
    if (param.beam_width == 0 || param.beam_width > vocab_size) {
        throw std::invalid_argument("beam_width " + std::to_string(param.beam_width));
    }
    std::vector<Generation> beams(param.beam_width);
    for (size_t beam = 0; beam < param.beam_width; ++beam) {
        Generation& generation = beams[beam];
        DynamicDecodeLayer decode(param, end_id, beam);
        while (generation.size() < length && !decode.finished()) {
            generation.push_back(decode.forward(logits(generation.empty() ? last : generation.back().token)));
        }
    }
    return beams;
}

}  // namespace fastertransformer

// What the loader of GPT's weights uses of CUDA and of FasterTransformer's other files: memory of the host, and files
// that must have as many numbers as the loader asks for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <math.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct half {
    uint16_t bits;
};
using cudaStream_t = void*;
using cublasHandle_t = void*;
using cublasLtHandle_t = void*;
struct cudaDeviceProp {};
enum { CUDA_R_16F, CUDA_R_32F };

inline int cudaSetDevice(int) { return 0; }
inline int cudaGetDeviceProperties(cudaDeviceProp*, int) { return 0; }
inline int cudaMalloc(void*, size_t) { return 0; }
inline int cudaFree(void*) { return 0; }
inline int cublasCreate(cublasHandle_t*) { return 0; }
inline int cublasLtCreate(cublasLtHandle_t*) { return 0; }
inline int cublasSetStream(cublasHandle_t, cudaStream_t) { return 0; }

#define FT_CHECK(condition) require(condition, #condition)
#define FT_CHECK_WITH_INFO(condition, info) require(condition, info)
#define FT_LOG_ERROR(...)
#define FT_LOG_WARNING(...)

namespace fastertransformer {

enum FtCudaDataType { FP32 = 0, FP16 = 1, BF16 = 2, INT8 = 3 };
enum class AttentionType { UNFUSED_MHA };
enum class AllocatorType { CUDA };
enum class LayerNormType { pre_layernorm, post_layernorm };
enum class ActivationType { Gelu, Relu };
enum { MEMORY_GPU, TYPE_INT8 };

inline void require(bool condition, const std::string& info)
{
    if (!condition) {
        throw std::runtime_error(info);
    }
}
inline void check_cuda_error(int) {}
inline int getDeviceCount() { return 8; }
inline int getSMVersion() { return 90; }
inline FtCudaDataType getModelFileType(const std::string&, const std::string&) { return FP32; }
inline LayerNormType getLayerNormType(const std::string&) { return LayerNormType::pre_layernorm; }
inline ActivationType getActivationType(const std::string&) { return ActivationType::Gelu; }
inline bool checkIfFileExist(const std::string& file) { return std::filesystem::exists(file); }
template<typename... Values>
std::string fmtstr(const std::string& text, Values...) { return text; }
template<typename T, typename... Values>
AttentionType getAttentionType(Values...) { return AttentionType::UNFUSED_MHA; }

struct Tensor {
    Tensor(int, int, std::vector<size_t>, void*) {}
};
inline void invokeTransposeInt8Tensor(const Tensor&, const Tensor&, cudaStream_t) {}
template<typename... Values>
void invokeLdnCalibrateWeightPerChannel(Values...) {}
template<typename... Values>
void invokeLdnTransposeQuantizeWeightPerChannel(Values...) {}

template<typename T>
struct LayerNormWeight {
    const T* gamma = nullptr;
    const T* beta  = nullptr;
};

template<typename T>
void deviceMalloc(T** memory, size_t numbers, bool = true)
{
    *memory = static_cast<T*>(std::malloc(numbers * sizeof(T)));
}

template<typename T>
void deviceFree(T*& memory)
{
    std::free(memory);
    memory = nullptr;
}

template<typename T>
void cudaD2Dcpy(T*, const T*, size_t) {}

inline size_t asked_for(const std::vector<size_t>& shape, const std::string& file)
{
    size_t numbers = 1;
    for (size_t size : shape) {
        numbers *= size;
    }
    std::printf("file %s %zu\n", std::filesystem::path(file).filename().c_str(), numbers);
    return numbers;
}

template<typename T>
void loadWeightFromBin(T* memory, std::vector<size_t> shape, std::string file, FtCudaDataType)
{
    std::memset(memory, 0, asked_for(shape, file) * sizeof(T));
}

template<typename T>
void loadWeightFromBinAndQuantizeForWeightOnly(
    int8_t* memory, T* scales, std::vector<size_t> shape, std::string file, FtCudaDataType)
{
    const size_t numbers = asked_for(shape, file);
    std::memset(memory, 0, numbers);
    std::memset(scales, 0, numbers / shape[shape.size() - 2] * sizeof(T));
}

struct NcclParam {};
struct AbstractCustomComm {};
template<typename T>
struct CustomARCommTypeConverter {
    using Type = T;
};
template<typename T>
void initCustomAllReduceComm(std::vector<std::shared_ptr<AbstractCustomComm>>*, int, int) {}

template<AllocatorType>
struct Allocator {
    explicit Allocator(int) {}
    void setStream(cudaStream_t) {}
};
struct cublasAlgoMap {
    explicit cublasAlgoMap(const std::string&) {}
};
struct cublasMMWrapper {
    template<typename... Values>
    explicit cublasMMWrapper(Values...) {}
    template<typename... Values>
    void setGemmConfig(Values...) {}
    void setFP32GemmConfig() {}
    void ownHandles() {}
};

}  // namespace fastertransformer

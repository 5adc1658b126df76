// One product with an epilogue, by the method that the patch adds, with a cuBLASLt that notes what it is asked for.
//
// Arguments: TYPE (float, half, bfloat16), COMPUTE (fp32, fp16), CONFIGURED (0, 1: whether the configuration chooses the
// algorithm), EPILOGUE, STATUS of cuBLASLt. Prints what became of it, then the descriptors that are left and whether the
// lock is free.

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "src/fastertransformer/utils/env_switch.h"

enum cudaDataType_t { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F };
enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS          = 0,
    CUBLAS_STATUS_INVALID_VALUE    = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED    = 15
};
enum cublasLtEpilogue_t { CUBLASLT_EPILOGUE_DEFAULT = 1 };
enum cublasLtMatmulDescAttributes_t { CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_BIAS_POINTER };
enum CublasDataType { FLOAT_DATATYPE };
struct Product {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void*        bias     = nullptr;
};
struct Matrix {
    int rows;
    int columns;
};
using cublasLtMatmulDesc_t   = Product*;
using cublasLtMatrixLayout_t = Matrix*;
using cublasLtHandle_t       = int;
using cudaStream_t           = int;
constexpr int CUBLAS_WORKSPACE_SIZE = 1 << 25;

static int            left   = 0;
static cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

template<typename T>
static cublasStatus_t make(T** made, T value)
{
    *made = new T(value);
    ++left;
    return CUBLAS_STATUS_SUCCESS;
}

template<typename T>
static cublasStatus_t destroy(T* made)
{
    delete made;
    --left;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t)
{
    return make(made, Product());
}

static cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made)
{
    return destroy(made);
}

static cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t, int rows, int columns, int)
{
    return make(made, Matrix{rows, columns});
}

static cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made)
{
    return destroy(made);
}

static void cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t   product,
                                           cublasLtMatmulDescAttributes_t attribute,
                                           const void*            value,
                                           size_t)
{
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) {
        product->epilogue = *static_cast<const cublasLtEpilogue_t*>(value);
    }
    else {
        product->bias = *static_cast<const void* const*>(value);
    }
}

static cublasStatus_t cublasLtMatmul(cublasLtHandle_t,
                                     cublasLtMatmulDesc_t product,
                                     const float*,
                                     const void*,
                                     cublasLtMatrixLayout_t a,
                                     const void*,
                                     cublasLtMatrixLayout_t b,
                                     const float*,
                                     void*,
                                     cublasLtMatrixLayout_t,
                                     void*,
                                     cublasLtMatrixLayout_t c,
                                     const void*,
                                     void*,
                                     size_t,
                                     cudaStream_t)
{
    std::printf("%dx%d = %dx%d by %dx%d, epilogue %d, bias %s\n",
                c->rows,
                c->columns,
                a->rows,
                a->columns,
                b->rows,
                b->columns,
                product->epilogue,
                product->bias == nullptr ? "none" : "given");
    return status;
}

static void check_cuda_error(cublasStatus_t found)
{
    if (found != CUBLAS_STATUS_SUCCESS) {
        throw std::runtime_error("cuBLAS");
    }
}

static void sync_check_cuda_error() {}

struct Algorithms {
    bool configured;
    bool isExist(int, int, int, int, CublasDataType)
    {
        return configured;
    }
};

struct cublasMMWrapper {
    cudaDataType_t   Atype_, Btype_, Ctype_, computeType_;
    Algorithms*      cublas_algo_map_;
    std::mutex*      mu_;
    cublasLtHandle_t cublaslt_handle_  = 0;
    cudaStream_t     stream_           = 0;
    void*            cublas_workspace_ = nullptr;

    CublasDataType getCublasDataType(cudaDataType_t)
    {
        return FLOAT_DATATYPE;
    }
    bool GemmWithEpilogue(
        int m, int n, int k, const void* A, const void* B, const void* bias, void* C, cublasLtEpilogue_t epilogue);
};

using fastertransformer::isSwitchedOff;

#include "added.inc"

int main(int, char** words)
{
    const std::string    type     = words[1];
    const cudaDataType_t data     = type == "float" ? CUDA_R_32F : type == "half" ? CUDA_R_16F : CUDA_R_16BF;
    const auto           epilogue = static_cast<cublasLtEpilogue_t>(std::atoi(words[4]));
    Algorithms           algorithms{std::string(words[3]) == "1"};
    std::mutex           lock;
    float                bias = 0;
    cublasMMWrapper      wrapper{
        data, data, data, std::string(words[2]) == "fp32" ? CUDA_R_32F : CUDA_R_16F, &algorithms, &lock};
    status = static_cast<cublasStatus_t>(std::atoi(words[5]));
    try {
        const bool computed = wrapper.GemmWithEpilogue(6400, 8, 1600, nullptr, nullptr, &bias, nullptr, epilogue);
        std::printf("%s\n", computed ? "computed" : "refused");
    }
    catch (const std::runtime_error& error) {
        std::printf("%s failed\n", error.what());
    }
    std::printf("left %d, %s\n", left, lock.try_lock() ? "free" : "locked");
}

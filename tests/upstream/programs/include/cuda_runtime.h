// CUDA's calls in the backend's headers, for a machine without GPU: all memory is the CPU's.
#pragma once

#include <cstddef>
#include <cstring>

enum cudaError_t { cudaSuccess, cudaErrorNotReady };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind)
{
    std::memcpy(to, from, size);
    return cudaSuccess;
}

inline cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}

inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

inline cudaError_t cudaStreamQuery(void*)
{
    return cudaSuccess;
}

inline const char* cudaGetErrorString(cudaError_t)
{
    return "";
}

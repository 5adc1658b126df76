#pragma once

#include <stdexcept>

#define check_cuda_error(call)                                                                                         \
    if ((call) != cudaSuccess) {                                                                                       \
        throw std::runtime_error(#call);                                                                               \
    }

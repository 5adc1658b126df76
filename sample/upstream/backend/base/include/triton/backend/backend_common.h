// Helpers for backends.
#pragma once

#include <string>
#include <vector>

#include "triton/core/tritonbackend.h"

// Hands an error of the server to the caller.
#define RETURN_IF_ERROR(call)                    \
    do {                                         \
        TRITONSERVER_Error* error__ = (call);    \
        if (error__ != nullptr) return error__;  \
    } while (false)

#define LOG_MESSAGE(level, text) \
    triton::backend::Ignore(TRITONSERVER_LogMessage(level, __FILE__, __LINE__, (text).c_str()))

namespace triton { namespace backend {

struct InputTensor {
    std::string name;
    TRITONSERVER_DataType type;
    std::vector<int64_t> shape;
    std::vector<char> data;
};

// For calls whose failure changes nothing any more.
void Ignore(TRITONSERVER_Error* error);

// Copies all inputs of a request, which must lie in the CPU's memory.
TRITONSERVER_Error* ReadInputs(TRITONBACKEND_Request* request, std::vector<InputTensor>* inputs);

// Adds an output of `byte_size` bytes to a response.
TRITONSERVER_Error* WriteOutput(
    TRITONBACKEND_Response* response, const std::string& name, TRITONSERVER_DataType type,
    const std::vector<int64_t>& shape, const void* data, size_t byte_size);

}}  // namespace triton::backend

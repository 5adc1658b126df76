#include "triton/backend/backend_common.h"

#include <cstring>

namespace triton { namespace backend {

void Ignore(TRITONSERVER_Error* error)
{
    if (error != nullptr) {
        TRITONSERVER_ErrorDelete(error);
    }
}

TRITONSERVER_Error* ReadInputs(TRITONBACKEND_Request* request, std::vector<InputTensor>* inputs)
{
    uint32_t count = 0;
    RETURN_IF_ERROR(TRITONBACKEND_RequestInputCount(request, &count));
    for (uint32_t index = 0; index < count; ++index) {
        TRITONBACKEND_Input* input = nullptr;
        const char* name = nullptr;
        const int64_t* shape = nullptr;
        uint32_t dimensions = 0;
        uint32_t buffers = 0;
        uint64_t byte_size = 0;
        InputTensor tensor;
        RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, index, &input));
        RETURN_IF_ERROR(TRITONBACKEND_InputProperties(
            input, &name, &tensor.type, &shape, &dimensions, &byte_size, &buffers));
        tensor.name = name;
        tensor.shape.assign(shape, shape + dimensions);
        tensor.data.reserve(byte_size);
        for (uint32_t part = 0; part < buffers; ++part) {
            const void* data = nullptr;
            uint64_t size = 0;
            TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
            int64_t device = 0;
            RETURN_IF_ERROR(TRITONBACKEND_InputBuffer(input, part, &data, &size, &memory, &device));
            if (memory == TRITONSERVER_MEMORY_GPU) {
                return TRITONSERVER_ErrorNew(
                    TRITONSERVER_ERROR_UNSUPPORTED, (tensor.name + ": not in the CPU's memory").c_str());
            }
            const char* bytes = static_cast<const char*>(data);
            tensor.data.insert(tensor.data.end(), bytes, bytes + size);
        }
        inputs->push_back(std::move(tensor));
    }
    return nullptr;
}

TRITONSERVER_Error* WriteOutput(
    TRITONBACKEND_Response* response, const std::string& name, TRITONSERVER_DataType type,
    const std::vector<int64_t>& shape, const void* data, size_t byte_size)
{
    TRITONBACKEND_Output* output = nullptr;
    void* buffer = nullptr;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    RETURN_IF_ERROR(TRITONBACKEND_ResponseOutput(
        response, &output, name.c_str(), type, shape.data(), static_cast<uint32_t>(shape.size())));
    RETURN_IF_ERROR(TRITONBACKEND_OutputBuffer(output, &buffer, byte_size, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU) {
        return TRITONSERVER_ErrorNew(
            TRITONSERVER_ERROR_UNSUPPORTED, (name + ": not in the CPU's memory").c_str());
    }
    std::memcpy(buffer, data, byte_size);
    return nullptr;
}

}}  // namespace triton::backend

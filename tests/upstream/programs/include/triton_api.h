// The server's side of Triton's API, as far as it does not depend on what a program's requests are.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "triton/core/tritonbackend.h"

struct TRITONSERVER_Error {
    TRITONSERVER_Error_Code code;
    std::string message;
};

// One response.
struct Sent {
    std::map<std::string, std::pair<std::vector<int64_t>, std::vector<char>>> outputs;
    std::string error;  // "": none
    TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_UNKNOWN;
    bool operator==(const Sent& other) const { return outputs == other.outputs && error == other.error; }
};

struct TRITONBACKEND_Output {
    std::vector<char>* data;
};

struct TRITONBACKEND_Response {
    TRITONBACKEND_Request* request;
    Sent content;
    TRITONBACKEND_Output output{nullptr};
};

struct TRITONBACKEND_ResponseFactory {
    TRITONBACKEND_Request* request;
};

extern "C" {

inline TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message)
{
    return new TRITONSERVER_Error{code, message};
}
inline const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error)
{
    return error->message.c_str();
}
inline void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error)
{
    delete error;
}
inline uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType type)
{
    return type == TRITONSERVER_TYPE_BOOL ? 1 : type == TRITONSERVER_TYPE_UINT64 ? 8 : 4;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response* response, TRITONBACKEND_Output** output, const char* name, const TRITONSERVER_DataType,
    const int64_t* shape, const uint32_t dims)
{
    auto& written = response->content.outputs[name];
    written.first.assign(shape, shape + dims);
    response->output.data = &written.second;
    *output = &response->output;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output* output, void** buffer, const uint64_t size, TRITONSERVER_MemoryType*, int64_t*)
{
    output->data->resize(size);
    *buffer = output->data->data();
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request* request)
{
    *response = new TRITONBACKEND_Response{request, {}};
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response** response, TRITONBACKEND_ResponseFactory* factory)
{
    return TRITONBACKEND_ResponseNew(response, factory->request);
}

}  // extern "C"

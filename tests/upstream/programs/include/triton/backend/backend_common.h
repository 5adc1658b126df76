// What the backend's headers need of Triton's backend utilities.
#pragma once

#include <cstdint>
#include <vector>

#include "triton/core/tritonbackend.h"

#define SET_TIMESTAMP(name) name = 0

#define LOG_MESSAGE(level, message) static_cast<void>(message)

#define LOG_IF_ERROR(call, message)          \
    do {                                     \
        TRITONSERVER_Error* error__ = (call); \
        if (error__ != nullptr) {            \
            throw std::runtime_error(message); \
        }                                    \
    } while (false)

namespace triton { namespace backend {

inline void RequestsRespondWithError(TRITONBACKEND_Request**, uint32_t, TRITONSERVER_Error*)
{
    throw std::runtime_error("a request was refused");
}

inline void SendErrorForResponses(std::vector<TRITONBACKEND_Response*>*, uint32_t, TRITONSERVER_Error* error)
{
    throw std::runtime_error(TRITONSERVER_ErrorMessage(error));
}

}}  // namespace triton::backend

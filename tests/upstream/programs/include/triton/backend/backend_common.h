// What the backend's headers need of Triton's backend utilities.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "triton/core/tritonbackend.h"

#define SET_TIMESTAMP(name) name = std::chrono::steady_clock::now().time_since_epoch().count()

#define LOG_MESSAGE(level, message) static_cast<void>(message)

#define LOG_IF_ERROR(call, message)          \
    do {                                     \
        TRITONSERVER_Error* error__ = (call); \
        if (error__ != nullptr) {            \
            throw std::runtime_error(message); \
        }                                    \
    } while (false)

namespace triton { namespace backend {

inline void RequestsRespondWithError(TRITONBACKEND_Request** requests, uint32_t count, TRITONSERVER_Error* error)
{
    for (uint32_t i = 0; i < count; ++i) {
        TRITONBACKEND_Response* response = nullptr;
        TRITONBACKEND_ResponseNew(&response, requests[i]);
        TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
        TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL);
    }
    TRITONSERVER_ErrorDelete(error);
}

inline void SendErrorForResponses(std::vector<TRITONBACKEND_Response*>*, uint32_t, TRITONSERVER_Error* error)
{
    throw std::runtime_error(TRITONSERVER_ErrorMessage(error));
}

}}  // namespace triton::backend

// A server of requests in flight: who has left, how long a request waits at most, and the metrics, by name and labels.
// With SERVER_CANCELS it is one from 23.10 on, which tells the first two.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "triton_api.h"

struct TRITONBACKEND_Request {
    std::vector<Sent> answers;
    std::atomic<bool> cancelled{false};
    std::atomic<bool> final{false}, released{false};
    uint64_t timeout_us = 0;
};

struct TRITONSERVER_Parameter {
    std::string name, value;
};

struct TRITONSERVER_MetricFamily {
    std::string name;
    bool counts;
};

struct TRITONSERVER_Metric {
    std::string shown;
    bool counts;
};

inline void Require(const bool holds, const char* what)
{
    if (!holds) {
        std::fprintf(stderr, "%s\n", what);
        std::_Exit(1);
    }
}

class Metrics {
 public:
    static Metrics& All()
    {
        static Metrics all;
        return all;
    }
    double Value(const std::string& shown)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return values_.at(shown);
    }
    void Add(const std::string& shown, const double more)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        values_[shown] += more;
    }

 private:
    std::mutex mutex_;
    std::map<std::string, double> values_;
};

extern "C" {

inline TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request*, uint32_t* count)
{
    *count = 2;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request*, const uint32_t index, const char** name)
{
    *name = index == 0 ? "output_ids" : "sequence_length";
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(
    TRITONBACKEND_ResponseFactory** factory, TRITONBACKEND_Request* request)
{
    *factory = new TRITONBACKEND_ResponseFactory{request};
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory)
{
    delete factory;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response* response, const uint32_t flags, TRITONSERVER_Error* error)
{
    Require(!response->request->final, "an answer after the last");
    if (error != nullptr) {
        response->content.error = error->message;
        response->content.code = error->code;
    }
    response->request->answers.push_back(response->content);
    response->request->final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    delete response;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t)
{
    Require(request->final && !request->released.exchange(true), "a request is released once, after its answer");
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*, const bool, const uint64_t, const uint64_t, const uint64_t,
    const uint64_t)
{
    return nullptr;
}
inline TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance*, const uint64_t, const uint64_t, const uint64_t, const uint64_t, const uint64_t)
{
    return nullptr;
}
inline TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(
    const char* name, const TRITONSERVER_ParameterType, const void* value)
{
    return new TRITONSERVER_Parameter{name, static_cast<const char*>(value)};
}
inline void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter)
{
    delete parameter;
}
inline TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(
    TRITONSERVER_MetricFamily** family, const TRITONSERVER_MetricKind kind, const char* name, const char*)
{
    *family = new TRITONSERVER_MetricFamily{name, kind == TRITONSERVER_METRIC_KIND_COUNTER};
    return nullptr;
}
inline TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family)
{
    delete family;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONSERVER_MetricNew(
    TRITONSERVER_Metric** metric, TRITONSERVER_MetricFamily* family, const TRITONSERVER_Parameter** labels,
    const uint64_t count)
{
    std::string shown = family->name + "{";
    for (uint64_t i = 0; i < count; ++i) {
        shown += (i ? "," : "") + labels[i]->name + "=" + labels[i]->value;
    }
    *metric = new TRITONSERVER_Metric{shown + "}", family->counts};
    Metrics::All().Add((*metric)->shown, 0);
    return nullptr;
}
inline TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric)
{
    delete metric;
    return nullptr;
}
inline TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value)
{
    Require(!metric->counts || value > 0, "a counter rises");
    Metrics::All().Add(metric->shown, value);
    return nullptr;
}
#ifdef SERVER_CANCELS
// Not inline: the backend's headers only have weak references to them.
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request, bool* is_cancelled)
{
    *is_cancelled = request->cancelled;
    return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout)
{
    *timeout = request->timeout_us;
    return nullptr;
}
#endif

}  // extern "C"

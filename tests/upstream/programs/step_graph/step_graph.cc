// Requests whose steps go through StepGraph, with a CUDA that notes what it is asked for.
//
// Arguments: FIRST LAST BEAMS FAULT for each request. Prints a line for each step: its number, and whether its kernels
// were launched or replayed, with the step that they were sized for. At the end: what is left of streams and graphs.

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "src/fastertransformer/utils/step_graph.h"

struct Stream {
    bool capturing = false;
    int  step      = 0;
};
struct Graph {
    int step;
};
struct Executable {
    int step;
};

namespace {
int         streams = 0, graphs = 0, executables = 0;
std::string fault;
}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags)
{
    if (flags != cudaStreamNonBlocking) {
        throw std::logic_error("other threads could not use the default stream");
    }
    *stream = new Stream;
    ++streams;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    --streams;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    if (fault == "begin") {
        return cudaErrorStreamCaptureInvalidated;
    }
    stream->capturing = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph)
{
    stream->capturing = false;
    if (fault == "end" || fault == "throw") {
        return cudaErrorStreamCaptureInvalidated;
    }
    *graph = new Graph{stream->step};
    ++graphs;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long)
{
    if (fault == "instantiate") {
        return cudaErrorStreamCaptureInvalidated;
    }
    *executable = new Executable{graph->step};
    ++executables;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    if (stream->capturing) {
        throw std::logic_error("launched into a capture");
    }
    std::printf("replayed %d\n", executable->step);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    --graphs;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    delete executable;
    --executables;
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t)
{
    return "an error";
}

int main(int count, char** arguments)
{
    {
        Stream                       model;
        Stream*                      used = &model;
        fastertransformer::StepGraph steps;
        for (int at = 1; at + 3 < count; at += 4) {
            const int first = std::atoi(arguments[at]), last = std::atoi(arguments[at + 1]);
            const int beams = std::atoi(arguments[at + 2]);
            fault           = arguments[at + 3];
            steps.begin(fault != "unusable", last);
            for (int step = first; step <= last; ++step) {
                std::printf("%d ", step);
                steps.run(
                    step,
                    beams > 1 ? (step - first) % 2 : 0,
                    &model,
                    [&](cudaStream_t stream) { used = stream; },
                    [&](int sized) {
                        if (!used->capturing) {
                            std::printf("launched %d\n", sized);
                            return;
                        }
                        if (fault == "throw") {
                            throw std::runtime_error("no");
                        }
                        used->step = sized;
                    });
                if (used != &model) {
                    throw std::logic_error("the model's stream was not set back");
                }
            }
        }
    }
    std::printf("left %d\n", streams + graphs + executables);
}

// What step_graph.h calls of CUDA; step_graph.cc stands in for the rest.
#pragma once

enum cudaError_t { cudaSuccess, cudaErrorStreamCaptureInvalidated };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
constexpr unsigned cudaStreamNonBlocking = 1;

struct Stream;
struct Graph;
struct Executable;
using cudaStream_t    = Stream*;
using cudaGraph_t     = Graph*;
using cudaGraphExec_t = Executable*;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);

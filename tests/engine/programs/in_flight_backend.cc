// A backend for a real server: requests in flight by the headers of patches/backend, and a batch with four slots whose step
// takes 10 ms and gives each row another token. The queue is all the server's: the backend itself has no policy.

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "in_flight_requests.h"

using namespace triton::backend::fastertransformer_backend;

namespace {

class Batch : public ft::InFlightBatch {
 public:
  std::vector<ft::InFlightToken> step(
      const std::vector<size_t>& leaving, const std::vector<ft::InFlightRow>& joining, const bool) override
  {
    rows_ += joining.size() - leaving.size();
    if (rows_ > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::vector<ft::InFlightToken>(rows_, {1, false});
  }
  void clear() override { rows_ = 0; }
  size_t slots() const override { return 4; }
  size_t cacheTokens() const override { return 4 * 2048; }
  size_t tokensOf(const ft::InFlightRow& row, const size_t answer) const override { return row.prompt.size() + answer; }
  int endId() const override { return 2; }
  int startId() const override { return -1; }

 private:
  size_t rows_ = 0;
};

struct Model {
  InFlightRoom room;
  RequestLimits limits;
};

struct Instance {
  Batch batch;
  RequestLimits limits;
  std::unique_ptr<InFlightRequests> requests;
};

template <typename State>
State* Of(void* state)
{
  return reinterpret_cast<State*>(state);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
  auto state = new Model;
  state->limits.generates = true;
  return TRITONBACKEND_ModelSetState(model, state);
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
  void* state;
  TRITONBACKEND_ModelState(model, &state);
  delete Of<Model>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance)
{
  TRITONBACKEND_Model* model;
  void* state;
  TRITONBACKEND_ModelInstanceModel(instance, &model);
  TRITONBACKEND_ModelState(model, &state);
  auto made = new Instance;
  made->limits = Of<Model>(state)->limits;
  const InFlightQueue queue{{}, Of<Model>(state)->room.Add(), std::make_shared<InFlightMetrics>("slow", "1")};
  made->requests.reset(
      new InFlightRequests(instance, {&made->batch}, 0, made->batch.slots(), 2048, false, 60, queue));
  return TRITONBACKEND_ModelInstanceSetState(instance, made);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance)
{
  void* state;
  TRITONBACKEND_ModelInstanceState(instance, &state);
  Of<Instance>(state)->requests.reset();
  delete Of<Instance>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count)
{
  void* state;
  TRITONBACKEND_ModelInstanceState(instance, &state);
  auto& own = *Of<Instance>(state);
  for (auto& accepted : AcceptedRequests(instance, requests, count, own.limits)) {
    BatchMember member(std::move(accepted));
    std::vector<ft::InFlightRow> rows;
    if (!own.requests->Takes(member, &rows)) {
      Refuse(instance, member.request, TRITONSERVER_ERROR_UNSUPPORTED, "not in flight");
      continue;
    }
    own.requests->Add(std::move(member), std::move(rows));
  }
  own.requests->WaitForRoom();
  return nullptr;
}

struct TRITONBACKEND_Batcher;

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** batcher, TRITONBACKEND_Model* model)
{
  void* state;
  TRITONBACKEND_ModelState(model, &state);
  *batcher = reinterpret_cast<TRITONBACKEND_Batcher*>(&Of<Model>(state)->room);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher*) { return nullptr; }
TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher, void** userp)
{
  *userp = const_cast<TRITONBACKEND_Batcher*>(batcher);
  Of<InFlightRoom>(*userp)->Begin();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request*, void* userp, bool* included)
{
  *included = Of<InFlightRoom>(userp)->Includes(1);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void*) { return nullptr; }

}  // extern "C"

// How requests in flight wait, by the headers that patches/backend/0270 adds: a limit, time-outs, who leaves, in which
// order, what the server may hand over, and what its metrics say. The batch computes a step when it is told to.
//
//     in_flight_queue

#include <chrono>
#include <functional>
#include <iostream>
#include <list>
#include <thread>

#include "beside_requests.h"
#include "in_flight_requests.h"
#include "in_flight_server.h"

using namespace triton::backend::fastertransformer_backend;
using triton::backend::RequestsRespondWithError;

constexpr size_t kSlots = 4, kSlotTokens = 24, kPrompt = 3;
constexpr int kEnd = 99;
const std::string kLabels = "{model=gptj,version=1";

// Never ends by itself; each row is what its prompt begins with.
class Batch: public ft::InFlightBatch {
 public:
  std::vector<ft::InFlightToken> step(
      const std::vector<size_t>& leaving, const std::vector<ft::InFlightRow>& joining, const bool) override
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto left = leaving.rbegin(); left != leaving.rend(); ++left) {
      rows_[*left] = rows_.back();
      rows_.pop_back();
    }
    for (const auto& row : joining) {
      rows_.push_back(row.prompt[0]);
      seen_.push_back(row.prompt[0]);
    }
    computing_ = !rows_.empty();
    changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ > 0 || rows_.empty(); });
    allowed_ -= !rows_.empty();
    computing_ = false;
    return std::vector<ft::InFlightToken>(rows_.size(), {1, false});
  }
  void clear() override { rows_.clear(); }
  size_t slots() const override { return kSlots; }
  size_t cacheTokens() const override { return kSlots * kSlotTokens; }
  size_t tokensOf(const ft::InFlightRow& row, const size_t answer) const override { return row.prompt.size() + answer; }
  int endId() const override { return kEnd; }
  int startId() const override { return -1; }

  // Ends the step that is being computed.
  void Step()
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return computing_; });
    allowed_ = 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ == 0; });
  }
  void Free()
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allowed_ = 1 << 30;
    changed_.notify_all();
  }
  // Ends steps until one has so many rows; who comes may have to wait for one that has begun ahead.
  void StepUntil(const size_t rows)
  {
    while (true) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return computing_; });
        if (rows_.size() == rows) {
          return;
        }
      }
      Step();
    }
  }
  // Waits for a step with so many rows.
  void Await(const size_t rows)
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return computing_ && rows_.size() == rows; });
  }
  // What has had a slot, in order.
  std::vector<int> Seen()
  {
    std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> rows_, seen_;
  bool computing_ = false;
  int allowed_ = 0;
};

RequestInput Input(const std::vector<int64_t>& shape, const std::vector<uint32_t>& values)
{
    const char* bytes = reinterpret_cast<const char*>(values.data());
    return {TRITONSERVER_TYPE_UINT32, shape, std::vector<char>(bytes, bytes + values.size() * sizeof(uint32_t))};
}

RequestInputs Inputs(const uint32_t name, const int64_t rows, const uint32_t wanted)
{
    RequestInputs inputs;
    inputs["input_ids"] = Input({rows, kPrompt}, std::vector<uint32_t>(rows * kPrompt, name));
    inputs["input_lengths"] = Input({rows, 1}, std::vector<uint32_t>(rows, kPrompt));
    inputs["request_output_len"] = Input({rows, 1}, std::vector<uint32_t>(rows, wanted));
    return inputs;
}

bool WithinASecond(const std::function<bool()>& holds)
{
    for (int i = 0; i < 1000 && !holds(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return holds();
}

// A model in flight, and what it was asked.
struct Served {
    Batch batch;
    std::list<TRITONBACKEND_Request> asked;
    InFlightRoom room;
    std::unique_ptr<InFlightRequests> requests;

    explicit Served(const QueuePolicy& policy, std::shared_ptr<InFlightMetrics> metrics = nullptr)
    {
        requests.reset(new InFlightRequests(
            nullptr, {&batch}, 0, kSlots, kSlotTokens, false, 60, {policy, room.Add(), std::move(metrics)}));
    }
    ~Served()
    {
        batch.Free();
        requests.reset();
        for (const auto& request : asked) {
            Require(request.released && request.answers.size() == 1, "each request is answered once");
        }
    }
    TRITONBACKEND_Request& Ask(
        const uint32_t name, const int64_t rows = 1, const uint32_t wanted = 8, const uint64_t timeout_us = 0)
    {
        asked.emplace_back();
        asked.back().timeout_us = timeout_us;
        BatchMember member(AcceptedRequest{&asked.back(), Inputs(name, rows, wanted)});
        std::vector<ft::InFlightRow> made;
        Require(requests->Takes(member, &made), "it is one in flight");
        requests->Add(std::move(member), std::move(made));
        return asked.back();
    }
    // Takes all slots with requests of one row, which want so many tokens.
    void Fill(const uint32_t wanted = 8)
    {
        Ask(0, 1, wanted);
        batch.Await(1);
        for (size_t i = 1; i < kSlots; ++i) {
            Ask(0, 1, wanted);
        }
        batch.StepUntil(kSlots);
    }
};

bool IsRefused(const TRITONBACKEND_Request& request, const std::string& words)
{
    return request.released && request.answers.back().error == words &&
           request.answers.back().code == TRITONSERVER_ERROR_UNAVAILABLE;
}

void TheQueueHasALimit()
{
    QueuePolicy policy;
    policy.limit = 2;
    Served served(policy);
    served.Fill();
    auto& first = served.Ask(1);
    auto& second = served.Ask(2);
    auto& third = served.Ask(3);
    Require(IsRefused(third, "Exceeds maximum queue size"), "the third of two places is refused at once");
    Require(!first.released && !second.released, "those that wait go on waiting");
    served.batch.Free();
    Require(WithinASecond([&] { return first.released && second.released; }), "and are answered");
    Require(first.answers[0].error.empty() && second.answers[0].error.empty(), "well");
    Require(served.batch.Seen().size() == kSlots + 2, "who is refused never has a slot");
}

void WhoFitsIntoFreeSlotsDoesNotWait()
{
    QueuePolicy policy;
    policy.limit = 1;
    Served served(policy);
    // The step that is being computed has one row; all that come meanwhile have slots at the next one.
    served.Ask(0);
    served.batch.Await(1);
    for (size_t i = 1; i < kSlots; ++i) {
        Require(!served.Ask(1).released, "there are slots");
    }
    Require(!served.Ask(2).released, "one may wait");
    Require(IsRefused(served.Ask(3), "Exceeds maximum queue size"), "a second one may not");
}

void WhoWaitsTooLongIsRefused()
{
    QueuePolicy policy;
    policy.timeout_us = 400000;
    Served served(policy);
    served.Fill();
    auto& late = served.Ask(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    auto& patient = served.Ask(2);
    served.batch.Step();
    Require(WithinASecond([&] { return late.released.load(); }), "at the next step");
    Require(IsRefused(late, "Request timeout expired"), "by the server's own words");
    Require(!patient.released, "another one came later");
    for (auto& request : served.asked) {
        Require(&request == &late || !request.released, "what has started has no time-out");
    }
    served.batch.Free();
    Require(WithinASecond([&] { return patient.released.load(); }), "it is answered in time, or refused");
}

void ARequestMayAskForLess(const bool told)
{
    QueuePolicy policy;
    policy.timeout_us = 10000000;
    policy.overrides = true;
    Served served(policy);
    served.Fill();
    auto& hasty = served.Ask(1, 1, 8, 20000);
    auto& patient = served.Ask(2, 1, 8, 20000000);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    served.batch.Step();
    served.batch.Await(kSlots);
    Require(WithinASecond([&] { return hasty.released.load(); }) == told, "a server that tells of it is obeyed");
    Require(!patient.released, "but not for more");
}

void WhoLeavesWhileWaitingNeverHasASlot()
{
    Served served(QueuePolicy{});
    served.Fill();
    auto& gone = served.Ask(1);
    auto& stays = served.Ask(2);
    gone.cancelled = true;
    served.batch.Step();
    Require(WithinASecond([&] { return gone.released.load(); }), "at the next step");
    Require(gone.answers[0].error == "the request was cancelled", "with its reason");
    served.batch.Free();
    Require(WithinASecond([&] { return stays.released.load(); }), "the one behind it is answered");
    const auto seen = served.batch.Seen();
    Require(std::count(seen.begin(), seen.end(), 1) == 0, "it was never computed");
}

void NobodyIsPassedOver()
{
    Served served(QueuePolicy{});
    served.Fill();
    served.Ask(7, kSlots);
    for (uint32_t name = 1; name <= 3; ++name) {
        served.Ask(name);
    }
    served.batch.Free();
    Require(WithinASecond([&] { return served.asked.back().released.load(); }), "all are answered");
    const auto seen = served.batch.Seen();
    Require(
        seen == std::vector<int>({0, 0, 0, 0, 7, 7, 7, 7, 1, 2, 3}), "rows start in the order in which requests came");
}

void TheServerKeepsWhatHasNoRoom()
{
    InFlightRoom none;
    none.Begin();
    Require(none.Includes(1000) && none.Includes(1000), "without slots all that came is one batch");

    Served served(QueuePolicy{});
    served.room.Begin();
    Require(served.room.Includes(1), "the first one");
    Require(served.room.Includes(kSlots), "all slots are free, and one more row may wait for the next");
    Require(!served.room.Includes(1), "no more");
    served.Fill();
    std::thread full([&] { served.requests->WaitForRoom(); });
    full.join();
    served.Ask(1);
    std::thread one([&] { served.requests->WaitForRoom(); });
    one.join();
    served.Ask(2);
    served.room.Begin();
    Require(served.room.Includes(3), "one is always handed over");
    Require(!served.room.Includes(1), "but one");
    std::atomic<bool> returned{false};
    std::thread two([&] {
        served.requests->WaitForRoom();
        returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Require(!returned, "two that wait are more than what is taken in advance");
    served.batch.Free();
    two.join();

    auto room = std::unique_ptr<InFlightRoom>(new InFlightRoom);
    auto instance = room->Add();
    *instance = 2;
    room->Begin();
    Require(room->Includes(1) && !room->Includes(2) && room->Includes(1), "so many rows");
    auto other = room->Add();
    *other = 8;
    Require(room->Includes(6), "one of the instances has room");
    other.reset();
    instance.reset();
    Require(room->Includes(100), "an instance that has ended limits nobody");
}

void MetricsTellWhatIs()
{
    const auto value = [](const std::string& name, const std::string& reason = "") {
        return Metrics::All().Value("ft_inflight_" + name + kLabels + (reason.empty() ? "" : ",reason=" + reason) + "}");
    };
    const auto shows = [&](const std::string& name, const double expected) {
        return WithinASecond([&] { return value(name) == expected; });
    };
    {
        QueuePolicy policy;
        policy.limit = 2;
        policy.timeout_us = 200000;
        auto metrics = std::make_shared<InFlightMetrics>("gptj", "1");
        // Another instance of the model.
        auto other = std::make_shared<InFlightMetrics>("gptj", "1");
        other->Set(InFlightMetrics::kSlots, 10);
        Served served(policy, metrics);
        Require(value("slots") == 10 + kSlots && value("cache_tokens") == kSlots * kSlotTokens, "what a model has");
        served.Fill();
        served.Ask(1);
        served.Ask(2);
        served.Ask(3);
        Require(value("waiting") == 2 && value("refused_total", "queue_full") == 1, "at once");
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        served.batch.Step();
        served.batch.Await(kSlots);
        Require(value("waiting") == 0 && value("refused_total", "timeout") == 2, "who leaves the queue");
        Require(shows("running", 4) && shows("slots_used", 4), "who is computed");
        const double made = value("generated_tokens_total");
        Require(made >= 5 && shows("cache_tokens_used", 4 * kPrompt + made), "with how many tokens");
        served.batch.Free();
        Require(shows("running", 0) && shows("slots_used", 0) && shows("cache_tokens_used", 0), "who has ended");
        Require(value("generated_tokens_total") == 4 * 8, "every token");
        served.requests.reset();
        other.reset();
    }
    Require(value("slots") == 0 && value("cache_tokens") == 0, "a model that is gone has nothing");
}

void WhatIsNotInFlightKeepsNobodyWaiting()
{
    RequestLimits limits;
    limits.generates = true;
    QueuePolicy policy;
    policy.limit = 3;
    policy.timeout_us = 400000;
    std::list<TRITONBACKEND_Request> asked;
    const auto answer = [](TRITONBACKEND_Request* request) {
        RequestsRespondWithError(&request, 1, TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "computed"));
    };
    std::mutex mutex;
    std::vector<size_t> sizes;
    std::atomic<bool> computing{false}, goes_on{false};
    {
        BesideRequests beside(nullptr, limits, {policy, nullptr, nullptr}, [&](RequestBatch* batch) {
            computing = true;
            while (!goes_on) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            std::lock_guard<std::mutex> lock(mutex);
            sizes.push_back(batch->Members().size());
            for (auto* request : batch->Requests()) {
                answer(request);
            }
        });
        const auto ask = [&](const uint32_t wanted) -> TRITONBACKEND_Request& {
            asked.emplace_back();
            RequestInputs inputs = Inputs(1, 1, wanted);
            inputs["beam_width"] = Input({1, 1}, {2});
            beside.Add(BatchMember(AcceptedRequest{&asked.back(), inputs}));
            return asked.back();
        };
        ask(4);
        Require(WithinASecond([&] { return computing.load(); }), "it is computed at once");
        auto& late = ask(8);
        std::this_thread::sleep_for(std::chrono::milliseconds(450));
        ask(4);
        ask(4);
        Require(IsRefused(ask(4), "Exceeds maximum queue size"), "more than three do not wait");
        goes_on = true;
        Require(WithinASecond([&] { return late.released.load(); }), "after the batch");
        Require(IsRefused(late, "Request timeout expired"), "it waited too long");
    }
    Require(sizes == std::vector<size_t>({1, 2}), "what came meanwhile is computed together");
    for (const auto& request : asked) {
        Require(request.released && request.answers.size() == 1, "each request is answered once");
    }
}

void WhatHasNoLengthsIsNotInFlight()
{
    Served served(QueuePolicy{});
    for (const char* name : {"input_lengths", "request_output_len"}) {
        TRITONBACKEND_Request request;
        RequestInputs inputs = Inputs(1, 1, 4);
        inputs.erase(name);
        const BatchMember member(AcceptedRequest{&request, inputs});
        std::vector<ft::InFlightRow> rows;
        Require(!served.requests->Takes(member, &rows), "the backend's own way answers it");
    }
}

int main()
{
#ifdef SERVER_CANCELS
    const bool told = true;
#else
    const bool told = false;
#endif
    TheQueueHasALimit();
    WhoFitsIntoFreeSlotsDoesNotWait();
    WhoWaitsTooLongIsRefused();
    ARequestMayAskForLess(told);
    if (told) {
        WhoLeavesWhileWaitingNeverHasASlot();
    }
    NobodyIsPassedOver();
    TheServerKeepsWhatHasNoRoom();
    MetricsTellWhatIs();
    WhatIsNotInFlightKeepsNobodyWaiting();
    WhatHasNoLengthsIsNotInFlight();
    std::cout << told << "\n";
    return 0;
}

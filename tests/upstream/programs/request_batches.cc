// Random requests of one batch get what they get alone, by the headers that patches/backend/0200 adds.
//
// The model that answers has the habits of FasterTransformer that let neighbours show: it takes settings and the
// output length from the first row, and minds the largest setting; it sees the padding in words and beams, counts it
// in sequence_length, shares the context of rows that are equal with their padding, and fails where the longest input
// and output together have no positions, or all rows and beams together no memory.
//
//     request_batches SEED COUNT

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <unordered_map>

#include "request_batches.h"
#include "response_parts.h"
#include "triton_api.h"

using namespace triton::backend::fastertransformer_backend;

// The server's side of the API.

struct TRITONBACKEND_Request {
    RequestInputs inputs;
    std::vector<Sent> answers;
};

// Every generating model's outputs, as a client gets them that names none.
const char* const kOutputs[] = {"output_ids", "sequence_length", "cum_log_probs", "output_log_probs"};

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request*, uint32_t* count)
{
    *count = 4;
    return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request*, const uint32_t index, const char** name)
{
    *name = kOutputs[index];
    return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response* response, const uint32_t, TRITONSERVER_Error*)
{
    response->request->answers.push_back(response->content);
    delete response;
    return nullptr;
}

}  // extern "C"

// Not called: requests are made here, and none is refused.
#define UNUSED(name, ...) \
    extern "C" TRITONSERVER_Error* name(__VA_ARGS__) { std::abort(); }
UNUSED(TRITONBACKEND_RequestInputCount, TRITONBACKEND_Request*, uint32_t*)
UNUSED(TRITONBACKEND_RequestInputByIndex, TRITONBACKEND_Request*, const uint32_t, TRITONBACKEND_Input**)
UNUSED(TRITONBACKEND_InputProperties, TRITONBACKEND_Input*, const char**, TRITONSERVER_DataType*, const int64_t**,
       uint32_t*, uint64_t*, uint32_t*)
UNUSED(TRITONBACKEND_InputBuffer, TRITONBACKEND_Input*, const uint32_t, const void**, uint64_t*,
       TRITONSERVER_MemoryType*, int64_t*)
UNUSED(TRITONBACKEND_ModelInstanceReportStatistics, TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*, const bool,
       const uint64_t, const uint64_t, const uint64_t, const uint64_t)

// The model.

struct Tensor {
    TRITONSERVER_DataType type;
    std::vector<size_t> shape;
    const void* data;
};

struct Outputs {
    std::vector<uint32_t> ids, lengths;
    std::vector<float> sums, log_probs;
    std::unordered_map<std::string, Tensor> tensors;
};

const uint32_t kEnd = 2;

uint64_t Mixed(const uint64_t one, const uint64_t other)
{
    return (one * 6364136223846793005ULL) ^ (other * 1442695040888963407ULL + 1) ^ (one >> 29);
}

uint64_t Of(const RequestInput& input, const size_t row, const size_t rows)
{
    uint64_t hash = 7;
    const size_t size = input.data.size() / rows;
    for (size_t i = 0; i < size; ++i) {
        hash = Mixed(hash, static_cast<unsigned char>(input.data[row * size + i]));
    }
    return hash;
}

// That are computed at once.
uint64_t Tokens(const RequestInputs& inputs)
{
    const auto first = [&](const char* name) { return inputs.count(name) ? inputs.at(name).Integer(0) : 0; };
    const auto& ids = inputs.at("input_ids").shape;
    const uint64_t answer = first("request_output_len") + first("max_output_len");
    return ids[0] * std::max<uint64_t>(first("beam_width"), 1) * (ids[1] + answer);
}

using Callback = std::function<void(const Outputs&)>;

Outputs Forward(const RequestInputs& inputs, const RequestLimits& limits, const Callback& streamed)
{
    const RequestInput& ids = inputs.at("input_ids");
    const bool encodes = !limits.shares_positions;
    const RequestInput& lengths = inputs.at(encodes ? "sequence_length" : "input_lengths");
    const size_t batch = ids.shape[0], width = ids.shape[1];
    const size_t wanted = inputs.at(encodes ? "max_output_len" : "request_output_len").Integer(0);
    const auto first = [&](const char* name, uint64_t otherwise) {
        return inputs.count(name) ? inputs.at(name).Integer(0) : otherwise;
    };
    const size_t beams = first("beam_width", 1), before = encodes ? 0 : width;
    const bool with_log_probs = first("is_return_log_probs", 0);
    if (!encodes && width + wanted > limits.output_positions) {
        throw std::runtime_error("too few positions");
    }
    if (Tokens(inputs) > limits.max_batch_tokens) {
        throw std::runtime_error("too little memory");
    }

    std::vector<std::vector<uint32_t>> answers;
    size_t steps = 0;
    for (size_t row = 0; row < batch; ++row) {
        size_t context = row;  // of the first row that is the same with its padding
        while (context > 0 && std::memcmp(&ids.data[4 * (context - 1) * width], &ids.data[4 * row * width], 4 * width) == 0) {
            --context;
        }
        uint64_t hash = 1;
        for (size_t i = 0; i < lengths.Integer(context); ++i) {
            hash = Mixed(hash, ids.Integer(row * width + i));
        }
        const size_t padding = encodes ? 0 : width - lengths.Integer(row);
        for (const auto& input : inputs) {
            const bool per_row = input.first == "random_seed" && input.second.type == TRITONSERVER_TYPE_UINT64;
            if (per_row) {
                hash = Mixed(hash, Of(input.second, row, batch));
            } else if (IsSetting(input.first) || input.first == "random_seed") {
                uint64_t largest = 0;
                for (size_t other = 0; other < batch; ++other) {
                    largest = std::max(largest, Of(input.second, other, batch));
                }
                hash = Mixed(Mixed(hash, Of(input.second, 0, batch)), largest);
            }
            if (input.first == "stop_words_list" && input.second.Read<int32_t>(input.second.shape[2]) > 1) {
                hash = Mixed(hash, padding);
            }
        }
        for (size_t beam = 0; beam < beams; ++beam) {
            uint64_t state = Mixed(hash, beams > 1 ? padding * 100 + wanted + beam : 0);
            answers.emplace_back();
            while (answers.back().size() < wanted && (answers.back().empty() || answers.back().back() != kEnd)) {
                state = Mixed(state, 3);
                answers.back().push_back(state / 7 % 13 == 0 ? kEnd : 3 + state / 1024 % 500);
            }
            steps = std::max(steps, answers.back().size());
        }
    }

    Outputs outputs;
    for (size_t step = streamed ? 1 : steps; step <= steps; ++step) {
        outputs = Outputs();
        for (size_t i = 0; i < answers.size(); ++i) {
            const size_t row = i / beams, size = std::min(step, answers[i].size());
            std::vector<uint32_t> tokens;
            for (size_t at = 0; !encodes && at < lengths.Integer(row); ++at) {
                tokens.push_back(ids.Integer(row * width + at));
            }
            tokens.insert(tokens.end(), answers[i].begin(), answers[i].begin() + size);
            tokens.resize(before + wanted, kEnd);
            outputs.ids.insert(outputs.ids.end(), tokens.begin(), tokens.end());
            outputs.lengths.push_back(before + size);
            outputs.sums.push_back(0);
            for (size_t at = 0; at < wanted; ++at) {
                outputs.log_probs.push_back(at < size ? -0.125f * (answers[i][at] % 8) : 0);
                outputs.sums.back() += outputs.log_probs.back();
            }
        }
        outputs.tensors = {
            {"output_ids", {TRITONSERVER_TYPE_UINT32, {batch, beams, before + wanted}, outputs.ids.data()}},
            {"sequence_length", {TRITONSERVER_TYPE_UINT32, {batch, beams}, outputs.lengths.data()}},
            {"parent_ids", {TRITONSERVER_TYPE_UINT32, {before + wanted, batch, beams}, nullptr}},
        };
        if (with_log_probs) {
            outputs.tensors.insert({"cum_log_probs", {TRITONSERVER_TYPE_FP32, {batch, beams}, outputs.sums.data()}});
            outputs.tensors.insert(
                {"output_log_probs", {TRITONSERVER_TYPE_FP32, {batch, beams, wanted}, outputs.log_probs.data()}});
        }
        if (step < steps) {
            streamed(outputs);
        }
    }
    return outputs;
}

// As Triton's backend utilities do for a request that is computed alone.
void WriteWhole(const Outputs& outputs, TRITONBACKEND_Response* response)
{
    for (const char* name : kOutputs) {
        const auto output = outputs.tensors.find(name);
        if (output != outputs.tensors.end()) {
            const auto& shape = output->second.shape;
            size_t size = 4;
            for (const size_t dim : shape) {
                size *= dim;
            }
            const char* data = static_cast<const char*>(output->second.data);
            response->content.outputs[name] = {{shape.begin(), shape.end()}, {data, data + size}};
        }
    }
}

// What the backend does with requests that are in one batch. Returns how often the model computed.
size_t Serve(std::vector<TRITONBACKEND_Request>* requests, const RequestLimits& limits, const bool streams)
{
    std::vector<AcceptedRequest> accepted;
    for (auto& request : *requests) {
        request.answers.clear();
        accepted.push_back({&request, request.inputs});
    }
    auto batches = RequestBatches(std::move(accepted), limits);
    for (auto& batch : batches) {
        std::vector<TRITONBACKEND_ResponseFactory> made;
        for (auto* request : batch.Requests()) {
            made.push_back({request});
        }
        std::vector<TRITONBACKEND_ResponseFactory*> factories;
        std::vector<TRITONBACKEND_Response*> responses;
        for (auto& factory : made) {
            factories.push_back(&factory);
            responses.push_back(new TRITONBACKEND_Response{factory.request, {}});
        }
        const RequestInputs inputs = batch.Joined() ? batch.Join() : batch.Members()[0].inputs;
        const Callback callback = [&](const Outputs& outputs) {
            if (batch.Joined()) {
                StreamParts(&batch, outputs.tensors, &responses, factories, 0);
            } else {
                WriteWhole(outputs, responses[0]);
                WriteMissing(&batch, outputs.tensors, &responses);
                TRITONBACKEND_ResponseSend(responses[0], 0, nullptr);
                TRITONBACKEND_ResponseNewFromFactory(&responses[0], factories[0]);
            }
        };
        const Outputs outputs = Forward(inputs, limits, streams ? callback : Callback());
        if (batch.Joined()) {
            WriteParts(&batch, outputs.tensors, &responses, 0, true);
        } else {
            WriteWhole(outputs, responses[0]);
            WriteMissing(&batch, outputs.tensors, &responses);
        }
        for (auto* response : responses) {
            TRITONBACKEND_ResponseSend(response, 1, nullptr);
        }
    }
    return batches.size();
}

// Random requests.

struct Chance {
    std::mt19937 source;
    size_t Below(size_t end) { return source() % end; }
    bool Share(double share) { return source() < share * 4294967296.0; }
};

template<typename T>
RequestInput Rows(TRITONSERVER_DataType type, std::vector<int64_t> shape, const std::vector<T>& values)
{
    RequestInput input{type, std::move(shape), {}};
    const char* bytes = reinterpret_cast<const char*>(values.data());
    input.data.assign(bytes, bytes + values.size() * sizeof(T));
    return input;
}

// `settings` makes them equal for several requests, as those of one application are.
RequestInputs Random(
    Chance* chance, Chance settings, const RequestLimits& limits, const TRITONSERVER_DataType seeds)
{
    const bool encodes = !limits.shares_positions;
    const size_t rows = chance->Share(0.8) ? 1 : 1 + chance->Below(3), width = 1 + chance->Below(6);
    const int64_t batch = rows;
    RequestInputs inputs;
    std::vector<uint32_t> ids, lengths;
    for (size_t row = 0; row < rows; ++row) {
        lengths.push_back(1 + chance->Below(width));
        for (size_t i = 0; i < width; ++i) {
            // Few tokens, so that rows of different requests are equal; other ones in a request of several rows,
            // as those would share the context alone, too.
            ids.push_back(i < lengths.back() ? chance->Below(3) + (rows > 1 ? 3 : 0) : kEnd);
        }
    }
    const uint32_t wanted = 1 + chance->Below(std::min<size_t>(9, limits.output_positions - width));
    inputs["input_ids"] = Rows(TRITONSERVER_TYPE_UINT32, {batch, static_cast<int64_t>(width)}, ids);
    inputs[encodes ? "sequence_length" : "input_lengths"] = Rows(TRITONSERVER_TYPE_UINT32, {batch}, lengths);
    inputs[encodes ? "max_output_len" : "request_output_len"] =
        Rows(TRITONSERVER_TYPE_UINT32, {batch, 1}, std::vector<uint32_t>(rows, wanted));
    const auto option = [&](const char* name, uint32_t value) {
        inputs[name] = Rows(TRITONSERVER_TYPE_UINT32, {batch}, std::vector<uint32_t>(rows, value));
        if (rows > 1 && chance->Share(0.1)) {
            inputs[name].data[4 * (rows - 1)] ^= 1;  // rows differ
        }
    };
    if (settings.Share(0.5)) {
        option("runtime_top_k", 1 + settings.Below(2));
    }
    if (settings.Share(0.2)) {
        option("temperature", settings.Below(2));
    }
    if (settings.Share(0.2)) {
        inputs["beam_width"] = Rows(TRITONSERVER_TYPE_UINT32, {batch}, std::vector<uint32_t>(rows, 1 + settings.Below(3)));
    }
    if (settings.Share(0.3)) {
        inputs["is_return_log_probs"] = Rows(TRITONSERVER_TYPE_BOOL, {batch}, std::vector<char>(rows, settings.Below(2)));
    }
    if (settings.Share(0.3) && seeds == TRITONSERVER_TYPE_UINT64) {
        std::vector<uint64_t> values(rows);
        for (auto& value : values) {
            value = chance->Below(1000);
        }
        inputs["random_seed"] = Rows(seeds, {batch}, values);
    } else if (settings.Share(0.3)) {
        inputs["random_seed"] = Rows(TRITONSERVER_TYPE_INT32, {batch}, std::vector<int32_t>(rows, settings.Below(2)));
    }
    if (settings.Share(0.3)) {
        const int32_t end = 1 + settings.Below(2);
        std::vector<int32_t> words;
        for (size_t row = 0; row < rows; ++row) {
            words.insert(words.end(), {5, 6, end, -1});
        }
        inputs["stop_words_list"] = Rows(TRITONSERVER_TYPE_INT32, {batch, 2, 2}, words);
    }
    if (settings.Share(0.05)) {
        inputs["request_prompt_type"] = Rows(TRITONSERVER_TYPE_UINT32, {batch}, std::vector<uint32_t>(rows, 1));
    }
    return inputs;
}

// A stream that has ended may get its last part once more, when the others have, too.
std::vector<Sent> WithoutRepeats(const std::vector<Sent>& answers)
{
    std::vector<Sent> kept;
    for (const Sent& answer : answers) {
        if (kept.empty() || !(kept.back() == answer)) {
            kept.push_back(answer);
        }
    }
    return kept;
}

int main(int, char** arguments)
{
    Chance chance{std::mt19937(std::atoi(arguments[1]))};
    size_t requests_sent = 0, computed = 0;
    for (int round = 0; round < std::atoi(arguments[2]); ++round) {
        const bool streams = chance.Share(0.3);
        RequestLimits limits;
        limits.generates = true;
        limits.vocab_size = 509;
        limits.shares_positions = chance.Share(0.7);
        limits.output_positions = chance.Share(0.5) ? 9 : 1000;
        const auto seeds = chance.Share(0.7) ? TRITONSERVER_TYPE_UINT64 : TRITONSERVER_TYPE_INT32;
        std::vector<TRITONBACKEND_Request> together(1 + chance.Below(12));
        for (auto& request : together) {
            const auto application = static_cast<unsigned>(2 * round + chance.Below(2));
            request.inputs = Random(&chance, Chance{std::mt19937(application)}, limits, seeds);
        }
        if (chance.Share(0.5)) {
            limits.max_batch_tokens = 0;
            for (const auto& request : together) {
                limits.max_batch_tokens = std::max(limits.max_batch_tokens, Tokens(request.inputs));
            }
        }
        requests_sent += together.size();
        computed += Serve(&together, limits, streams);
        for (size_t i = 0; i < together.size(); ++i) {
            std::vector<TRITONBACKEND_Request> alone(1);
            alone[0].inputs = together[i].inputs;
            Serve(&alone, limits, streams);
            if (together[i].answers.empty() || together[i].answers.back().outputs.size() != 4 || !(together[i].answers.back() == alone[0].answers.back()) ||
                WithoutRepeats(together[i].answers) != WithoutRepeats(alone[0].answers)) {
                std::cerr << "round " << round << ", request " << i << ": not what it gets alone, or not all of it\n";
                return 1;
            }
        }
    }
    std::cout << requests_sent << " " << computed << "\n";
    return 0;
}

// Whether a request of that many rows, beams and tokens is computed: "computed", or why it is refused.
//
//     batch_tokens LIMIT ROWS BEAMS PROMPT ANSWER [VALUES]
//
// LIMIT: the parameter max_batch_tokens, "" for none; VALUES: those of request_output_len for each row, 1 unless given.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "request_limits.h"

using namespace triton::backend::fastertransformer_backend;

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType)
{
    return sizeof(uint32_t);
}

RequestInput Filled(const std::vector<int64_t>& shape, const uint32_t value)
{
    size_t size = 1;
    for (const int64_t dim : shape) {
        size *= dim;
    }
    const std::vector<uint32_t> values(size, value);
    const char* bytes = reinterpret_cast<const char*>(values.data());
    return {TRITONSERVER_TYPE_UINT32, shape, std::vector<char>(bytes, bytes + size * sizeof(value))};
}

int main(int count, char** arguments)
{
    const uint32_t rows = std::atoi(arguments[2]), beams = std::atoi(arguments[3]);
    const uint32_t prompt = std::atoi(arguments[4]), answer = std::atoi(arguments[5]);
    const uint32_t values = count > 6 ? std::atoi(arguments[6]) : 1;
    RequestLimits limits;
    limits.generates = true;
    limits.ReadBatchTokens(arguments[1]);
    const RequestInputs inputs = {
        {"input_ids", Filled({rows, prompt}, 1)},
        {"input_lengths", Filled({rows, 1}, prompt)},
        {"request_output_len", Filled({rows, values}, answer)},
        {"beam_width", Filled({rows, 1}, beams)},
    };
    try {
        CheckRequest(inputs, limits);
        std::puts("computed");
    }
    catch (const std::invalid_argument& refused) {
        std::puts(refused.what());
    }
}

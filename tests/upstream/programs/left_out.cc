// Why an image does not serve a model (type, int8_mode), or a request with so many beams; a line of nothing if it does.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "request_limits.h"

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType)
{
    return sizeof(uint32_t);
}

int main(int count, char** arguments)
{
    using namespace triton::backend::fastertransformer_backend;
    if (count == 3) {
#ifdef BUILT_HEAD_SIZES
        std::puts(WhyNotServed(arguments[1], "/weights", std::atoi(arguments[2])).c_str());
#endif
        return 0;
    }
    const uint32_t width = std::strtoul(arguments[1], nullptr, 10);
    RequestInput beams{TRITONSERVER_TYPE_UINT32, {1, 1}, std::vector<char>(sizeof(width))};
    std::memcpy(beams.data.data(), &width, sizeof(width));
    try {
        CheckRequest({{"beam_width", beams}}, RequestLimits());
        std::puts("");
    }
    catch (const std::invalid_argument& refused) {
        std::puts(refused.what());
    }
}

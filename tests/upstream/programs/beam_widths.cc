// The numbers of beams up to the argument that a release computes, as its own limits of requests have them.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "request_limits.h"

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType)
{
    return sizeof(uint32_t);
}

int main(int, char** arguments)
{
    using namespace triton::backend::fastertransformer_backend;
    const unsigned long most = std::strtoul(arguments[1], nullptr, 10);
    for (uint32_t width = 0; width <= most; ++width) {
        RequestInput beams{TRITONSERVER_TYPE_UINT32, {1, 1}, std::vector<char>(sizeof(width))};
        std::memcpy(beams.data.data(), &width, sizeof(width));
        try {
            CheckRequest({{"beam_width", beams}}, RequestLimits());
            std::printf("%u\n", width);
        }
        catch (const std::invalid_argument& refused) {
            std::fprintf(stderr, "%s\n", refused.what());
        }
    }
}

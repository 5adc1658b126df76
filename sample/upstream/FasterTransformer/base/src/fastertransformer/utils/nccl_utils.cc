#include "src/fastertransformer/utils/nccl_utils.h"

#ifdef BUILD_MULTI_GPU
#include <nccl.h>
#endif

namespace fastertransformer {

std::string ncclLibraryVersion()
{
#ifdef BUILD_MULTI_GPU
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? "NCCL " + std::to_string(version) : "NCCL unknown";
#else
    return "no NCCL";
#endif
}

}  // namespace fastertransformer

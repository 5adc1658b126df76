#pragma once

#include <string>

namespace fastertransformer {

// Version of the NCCL library, or "no NCCL".
std::string ncclLibraryVersion();

}  // namespace fastertransformer

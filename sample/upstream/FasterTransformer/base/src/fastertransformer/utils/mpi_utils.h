#pragma once

#include <string>

namespace fastertransformer { namespace mpi {

// Name and version of the MPI library, or "no MPI".
std::string libraryVersion();

}}  // namespace fastertransformer::mpi

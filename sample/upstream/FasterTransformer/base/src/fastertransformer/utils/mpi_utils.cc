#include "src/fastertransformer/utils/mpi_utils.h"

#ifdef BUILD_MULTI_GPU
#include <mpi.h>
#endif

namespace fastertransformer { namespace mpi {

std::string libraryVersion()
{
#ifdef BUILD_MULTI_GPU
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, all.find(','));
#else
    return "no MPI";
#endif
}

}}  // namespace fastertransformer::mpi

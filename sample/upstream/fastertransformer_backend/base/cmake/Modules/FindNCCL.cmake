# Sets NCCL_INCLUDE_DIRS and NCCL_LIBRARIES; NCCL_ROOT_DIR in the environment is looked at first.
find_path(NCCL_INCLUDE_DIRS NAMES nccl.h HINTS $ENV{NCCL_ROOT_DIR}/include)
find_library(NCCL_LIBRARIES NAMES nccl HINTS $ENV{NCCL_ROOT_DIR}/lib)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL DEFAULT_MSG NCCL_INCLUDE_DIRS NCCL_LIBRARIES)
mark_as_advanced(NCCL_INCLUDE_DIRS NCCL_LIBRARIES)

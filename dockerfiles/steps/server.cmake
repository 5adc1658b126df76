# Triton's server, its core and its Python backend as one project: sources below SOURCES, all other libraries from the
# operating system, nothing fetched while configuring or compiling.
#
# Upstream's own top-level projects build each part, and about twenty libraries, as external projects. Their folders
# `src` are complete projects, which this one adds.
cmake_minimum_required(VERSION 3.31.8) # upstream's
project(tritonserver-from-sources LANGUAGES C CXX CUDA)

set(SOURCES "" CACHE PATH "The folder of the source trees")
foreach(name common core backend)
  string(TOUPPER FETCHCONTENT_SOURCE_DIR_REPO-${name} variable)
  set(${variable} ${SOURCES}/server-${name} CACHE PATH "")
endforeach()
set(FETCHCONTENT_FULLY_DISCONNECTED ON CACHE BOOL "")
set(FETCHCONTENT_TRY_FIND_PACKAGE_MODE ALWAYS CACHE STRING "")

# What the server can do. Without: metrics of GPUs, which need DCGM; tracing, which needs OpenTelemetry; cloud storage.
file(STRINGS ${SOURCES}/server/TRITON_VERSION TRITON_VERSION)
set(TRITON_MIN_CXX_STANDARD 17)
set(TRITON_MIN_COMPUTE_CAPABILITY 7.5)
foreach(feature GPU GRPC HTTP LOGGING STATS METRICS METRICS_CPU ENSEMBLE)
  set(TRITON_ENABLE_${feature} ON CACHE BOOL "")
endforeach()
foreach(feature METRICS_GPU MALI_GPU TRACING NVTX ASAN GCS S3 AZURE_STORAGE SAGEMAKER VERTEX_AI)
  set(TRITON_ENABLE_${feature} OFF CACHE BOOL "")
endforeach()
set(TRITON_COMMON_ENABLE_PROTOBUF ON CACHE BOOL "")
set(TRITON_COMMON_ENABLE_GRPC ON CACHE BOOL "")
set(TRITON_COMMON_ENABLE_PROTOBUF_PYTHON OFF CACHE BOOL "")
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_SKIP_BUILD_RPATH ON)

# Libraries that Debian ships without the package files that upstream asks for. A file in this folder of CMake's is
# found before all others.
find_package(PkgConfig REQUIRED)
foreach(package protobuf re2 prometheus-cpp libevent libevhtp)
  file(WRITE ${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/${package}-config.cmake "# see the top-level project")
endforeach()

# The program and its library both hold the descriptors of model_config.proto, and protobuf ends a process that
# registers them twice. So the program has a protobuf of its own: the static one, whose thread-local variables lie at
# fixed places of a program, and which so cannot be linked into the library.
find_library(PROTOBUF_SHARED NAMES libprotobuf.so REQUIRED)
find_library(PROTOBUF_STATIC NAMES libprotobuf.a REQUIRED)
add_library(protobuf::libprotobuf INTERFACE IMPORTED GLOBAL)
target_link_libraries(protobuf::libprotobuf INTERFACE
  $<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${PROTOBUF_STATIC},${PROTOBUF_SHARED}>)
target_link_options(protobuf::libprotobuf INTERFACE
  $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--exclude-libs,libprotobuf.a>)
include(FindProtobuf) # the functions that generate code, and protoc

pkg_check_modules(re2 REQUIRED IMPORTED_TARGET GLOBAL re2)
add_library(re2::re2 ALIAS PkgConfig::re2)
pkg_check_modules(prometheus REQUIRED IMPORTED_TARGET GLOBAL prometheus-cpp-core)
add_library(prometheus-cpp::core ALIAS PkgConfig::prometheus)
pkg_check_modules(LIBEVENT REQUIRED libevent libevent_pthreads)

# As third_party's CMakeLists.txt configures them.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(EVHTP_DISABLE_REGEX ON CACHE BOOL "")
set(EVHTP_DISABLE_SSL ON CACHE BOOL "")
set(EVHTP_TRITON_ENABLE_HTTP_CONTIGUOUS ON CACHE BOOL "")
add_subdirectory(${SOURCES}/third-party/libevhtp/libevhtp libevhtp EXCLUDE_FROM_ALL)
add_library(libevhtp::evhtp ALIAS evhtp)
find_package(CUDAToolkit REQUIRED)
set(CNMEM_PATH ${SOURCES}/third-party/cnmem/cnmem)
add_library(cnmem STATIC ${CNMEM_PATH}/src/cnmem.cpp)
target_include_directories(cnmem PUBLIC ${CNMEM_PATH}/include)
target_compile_definitions(cnmem PRIVATE CNMEM_DLLEXPORT)
target_link_libraries(cnmem PUBLIC CUDA::cudart)
set(CNMEM_LIBRARY cnmem CACHE STRING "")

find_package(dlpack CONFIG REQUIRED)
add_library(dlpack ALIAS dlpack::dlpack)
# The Python backend would download Boost, whose headers the compiler finds in the system; an empty folder replaces it.
set(TRITON_BOOST_URL ${CMAKE_BINARY_DIR}/no-boost CACHE STRING "")
file(MAKE_DIRECTORY ${TRITON_BOOST_URL}/boost)

# Named relative to the folder that the linker runs in.
configure_file(${SOURCES}/server-core/src/libtritonserver.ldscript libtritonserver.ldscript COPYONLY)
configure_file(${SOURCES}/python-backend/src/libtriton_python.ldscript libtriton_python.ldscript COPYONLY)

add_subdirectory(${SOURCES}/server-core/src core)
add_subdirectory(${SOURCES}/server/src server)
add_subdirectory(${SOURCES}/python-backend python-backend)

add_custom_target(shipped DEPENDS triton-core main triton-python-backend triton-python-backend-stub)

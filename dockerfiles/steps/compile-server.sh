#!/bin/sh
# compile-server.sh: compile the server of the sources in /src, and put what is shipped to /out
#
# With CMake and Ninja of /wheels, the toolkit in /usr/local/cuda and the CUDA runtime in /cuda-runtime.
set -eu
# shellcheck source=/dev/null
. /steps/compilers.sh
export SLOT_LOG=/build/slots.tsv
# The step has no network.
unset CCACHE_REMOTE_STORAGE CCACHE_SECONDARY_STORAGE
mkdir -p /build/project

export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
python3 -m pip --no-input --disable-pip-version-check install --quiet --no-cache-dir --no-index --no-deps /wheels/*.whl
ln -s /cuda-runtime/* /usr/local/cuda/lib/
ln -s lib /usr/local/cuda/lib64
cp /steps/server.cmake /build/project/CMakeLists.txt
export CUDACXX=/usr/local/cuda/bin/nvcc
cmake -G Ninja -S /build/project -B /build/server -D SOURCES=/src -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_C_COMPILER_LAUNCHER=ccache -D CMAKE_CXX_COMPILER_LAUNCHER=ccache -D CMAKE_CUDA_COMPILER_LAUNCHER=ccache
ninja -C /build/server -j "$JOBS" shipped
ccache --show-stats

cd /build/server
server=/out/opt/tritonserver
install -D -t "$server/bin" server/tritonserver
install -D -m 644 -t "$server/lib" core/libtritonserver.so
install -D -m 644 -t "$server/backends/python" python-backend/libtriton_python.so \
    /src/python-backend/src/resources/triton_python_backend_utils.py
install -D -t "$server/backends/python" python-backend/triton_python_backend_stub
strip --strip-unneeded "$server/bin/tritonserver" "$server/lib/libtritonserver.so" \
    "$server/backends/python/libtriton_python.so" "$server/backends/python/triton_python_backend_stub"
mkdir -p /out/etc/ld.so.conf.d
echo /opt/tritonserver/lib > /out/etc/ld.so.conf.d/tritonserver.conf
install -m 644 /src/server/LICENSE "$server/LICENSE"
install -D -m 644 /src/third-party/libevhtp/libevhtp/LICENSE /out/usr/local/share/doc/libevhtp/License.txt
install -D -m 644 /src/third-party/cnmem/cnmem/LICENSE /out/usr/local/share/doc/cnmem/License.txt

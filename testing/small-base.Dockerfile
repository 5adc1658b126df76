# The open base without the gigabytes of mathematics that the sample stack never calls: tests that build and publish
# many images on it push and verify them in a fraction of the time, and carry the base to another engine.
#
# NCCL is a stand-in that tells its version and holds machine code for sm_70, sm_80 and later.

ARG SERVING
ARG DEVEL

FROM ${DEVEL} AS nccl
COPY <<'EOF' /nccl/nccl.cu
#include <nccl.h>
__global__ void collective() {}
extern "C" ncclResult_t ncclGetVersion(int* version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
EOF
RUN nvcc -ccbin g++-11 -shared -Xcompiler -fPIC -Xlinker -soname=libnccl.so.2 \
    -gencode arch=compute_70,code=sm_70 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
    -o /nccl/libnccl.so.2 /nccl/nccl.cu

FROM ${SERVING} AS stripped
RUN rm /usr/lib/x86_64-linux-gnu/libcublas*
COPY --from=nccl /nccl/libnccl.so.2 /usr/local/lib/libnccl.so.2
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache

FROM scratch AS serving
COPY --from=stripped / /
ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 8000 8001 8002
WORKDIR /opt/tritonserver

FROM ${DEVEL} AS thinned
RUN cd /usr/lib/x86_64-linux-gnu \
    && rm libcublas* libcufft* libcurand* libcusolver* libcusparse* libnpp* libnvjpeg* libnvperf* libnvptxcompiler* \
    libnvrtc* libcupti* liblapack_static* lib?san.so.* nvidia/current/libnvidia-ptxjitcompiler.so.* \
    && rm /usr/bin/*-lto-dump-* /usr/lib/gcc/*/*/lto1 /usr/lib/gcc/*/12/cc1 /usr/lib/gcc/*/12/f951 \
    && rm -r /usr/bin/nvdisasm /usr/bin/compute-sanitizer /usr/lib/nvidia-cuda-toolkit/compute-sanitizer \
    /usr/lib/python3*/config-*/libpython*.a
COPY --from=nccl /nccl/libnccl.so.2 /usr/local/lib/libnccl.so.2
# The recipe installs PyPI's Ninja, which starts a Python for each program that CMake tries to compile while it configures.
# This name comes before it in PATH, and leads to the program in that package.
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache \
    && ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ninja/data/bin/ninja" \
    /usr/local/sbin/ninja

FROM scratch AS devel
COPY --from=thinned / /
ENV PATH=/usr/local/cuda/bin:/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /opt/tritonserver

# A Triton base whose server is compiled here, from pinned sources, with CUDA 13 from PyPI packages and all else from
# Debian's.
#
#   target serving  the server and what the backend needs at run time
#   target devel    serving + CUDA toolkit, host compiler, headers: compiles the backend, is never shipped
#
# Build context: steps/, the programs that the stages run. Named contexts, whose files the host has compared with their
# hashes: `debian`, a folder for each set of packages of debian.lock.yaml, with installed.txt, which lists what an image
# has once the set is installed; `wheels`: server/, the wheels of CUDA and NCCL, toolchain/, those of CMake and Ninja;
# `sources`: the server's, patched. The secret `host`: see triton-ft.Dockerfile.

# The system of debian.lock.yaml, which the host makes.
ARG OS_IMAGE


FROM scratch AS layer-steps
COPY --chmod=755 steps/apt-install.sh steps/fixed-times.sh steps/put.sh /

FROM scratch AS wheel-steps
COPY --chmod=755 steps/unpack-cuda.sh /

FROM scratch AS compile-steps
COPY --chmod=755 steps/compile-server.sh steps/compilers.sh steps/server.cmake steps/host-environment.sh steps/job-count.sh steps/slot.py /


FROM ${OS_IMAGE} AS cuda
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=debian,source=unpack,target=/debian \
    /steps/apt-install.sh
RUN --network=none --mount=type=bind,from=wheel-steps,target=/steps \
    --mount=type=bind,from=wheels,source=server,target=/wheels \
    /steps/unpack-cuda.sh


FROM ${OS_IMAGE} AS server
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=debian,source=compile,target=/debian \
    /steps/apt-install.sh
RUN --network=none --mount=type=bind,from=compile-steps,target=/steps \
    --mount=type=bind,from=wheels,source=toolchain,target=/wheels \
    --mount=type=bind,from=cuda,source=/devel/usr/local/cuda,target=/usr/local/cuda,rw \
    --mount=type=bind,from=cuda,source=/out/usr/local/cuda/lib,target=/cuda-runtime \
    --mount=type=bind,from=sources,target=/src \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    /steps/compile-server.sh && rm -rf /build


# The layers of images are made by steps that fix all times, not by COPY, which gives today's to the folders it fills.
FROM ${OS_IMAGE} AS serving
# OpenMPI's launcher depends on the ssh client, whose setuid helper is for host-based authentication, unused here.
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=debian,source=serving,target=/debian \
    /steps/fixed-times.sh sh -euc '/steps/apt-install.sh; chmod u-s /usr/lib/openssh/ssh-keysign'
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=cuda,source=/out,target=/cuda \
    --mount=type=bind,from=server,source=/out,target=/server \
    /steps/fixed-times.sh sh -euc \
        '/steps/put.sh /cuda / /server /; ldconfig; rm -f /var/cache/ldconfig/aux-cache'
ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 8000 8001 8002
WORKDIR /opt/tritonserver


FROM serving AS devel
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=debian,source=devel,target=/debian \
    /steps/fixed-times.sh /steps/apt-install.sh
# FindNCCL's compile test lacks the include path it has found, so NCCL must lie in the default folders.
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=cuda,source=/devel,target=/from \
    /steps/fixed-times.sh sh -euc '/steps/put.sh /from /; ln -s libnccl.so.2 /usr/local/lib/libnccl.so; ldconfig; \
        rm -f /var/cache/ldconfig/aux-cache'
# CMake's own language CUDA looks for nvcc here.
ENV PATH=/usr/local/cuda/bin:$PATH

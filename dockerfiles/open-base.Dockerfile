# A Triton base from Debian and PyPI packages alone, for networks without NGC and for CI.
#
#   target serving  the server and what the backend needs at run time
#   target devel    serving + CUDA toolkit, host compiler, headers: compiles the backend, is never shipped
#
# Build context: steps/, the programs that the stages run. Named context `wheels`: server/, the wheels of the server and
# of NCCL, which the host has compared with their hashes.

ARG OS_IMAGE=debian:bookworm-slim

# Pins of all packages requested by name. Debian drops old versions with each point release: bump them here, or point
# DEBIAN_MIRROR to a dated snapshot.
ARG DEBIAN_MIRROR=http://deb.debian.org/debian
ARG UNPACK_APT="unzip=6.0-28"
ARG SERVING_APT="\
    libcublas11=11.11.3.6~11.8.0-5~deb12u1 \
    libcublaslt11=11.11.3.6~11.8.0-5~deb12u1 \
    libcudart11.0=11.8.89~11.8.0-5~deb12u1 \
    libcurand10=11.1.1+~10.3.0.86~11.8.0-5~deb12u1 \
    libgomp1=12.2.0-14+deb12u1 \
    libnvtoolsext1=11.8.86~11.8.0-5~deb12u1 \
    libopenmpi3=4.1.4-3+b1 \
    libpython3.11=3.11.2-6+deb12u8 \
    openmpi-bin=4.1.4-3+b1 \
    python3=3.11.2-1+b1 \
    python3-numpy=1:1.24.2-1+deb12u1"
# gcc 11 is the newest that nvcc 11.8 accepts.
ARG DEVEL_APT="\
    ccache=4.8+really4.7.5-1 \
    g++-11=11.3.0-12 \
    gcc-11=11.3.0-12 \
    libopenmpi-dev=4.1.4-3+b1 \
    nvidia-cuda-toolkit=11.8.89~11.8.0-5~deb12u1 \
    python3-dev=3.11.2-1+b1 \
    python3-pip=23.0.1+dfsg-1 \
    rapidjson-dev=1.1.0+dfsg2-7.1"


FROM scratch AS apt-steps
COPY --chmod=755 steps/apt-install.sh /

FROM scratch AS wheel-steps
COPY --chmod=755 steps/unpack-wheels.sh /


FROM ${OS_IMAGE} AS server
ARG DEBIAN_MIRROR UNPACK_APT
RUN --mount=type=bind,from=apt-steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install.sh $UNPACK_APT
RUN --network=none --mount=type=bind,from=wheel-steps,target=/steps \
    --mount=type=bind,from=wheels,source=server,target=/wheels \
    /steps/unpack-wheels.sh


FROM ${OS_IMAGE} AS serving
ARG DEBIAN_MIRROR SERVING_APT
# OpenMPI's launcher depends on the ssh client, whose setuid helper is for host-based authentication, unused here.
RUN --mount=type=bind,from=apt-steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install.sh $SERVING_APT && chmod u-s /usr/lib/openssh/ssh-keysign
COPY --from=server /out/ /
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 8000 8001 8002
WORKDIR /opt/tritonserver


FROM serving AS devel
ARG DEBIAN_MIRROR DEVEL_APT
RUN --mount=type=bind,from=apt-steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install.sh $DEVEL_APT
# FindNCCL's compile test lacks the include path it has found, so NCCL must lie in the default folders.
COPY --from=server /devel/ /
RUN ln -s libnccl.so.2 /usr/local/lib/libnccl.so && ldconfig

# A Triton base from Debian and PyPI packages alone, for networks without NGC and for CI.
#
#   target serving  the server and what the backend needs at run time
#   target devel    serving + CUDA toolkit, host compiler, headers: compiles the backend, is never shipped
#
# Build context: none is read. Secrets, both optional: `ca`, a CA bundle for downloads through a TLS-inspecting
# proxy; `host`, KEY=VALUE lines put into the environment of the downloading steps (PIP_INDEX_URL, ...). Neither
# ends up in a layer or in a layer's cache key.

ARG OS_IMAGE=debian:bookworm-slim

# Every version that is asked for by name. Debian drops old versions with each point release: bump them here, or
# point DEBIAN_MIRROR to a dated snapshot.
ARG DEBIAN_MIRROR=http://deb.debian.org/debian
ARG PYTRITON=nvidia-pytriton==0.3.1
ARG NCCL=nvidia-nccl-cu12==2.21.5
ARG UNPACK_APT="python3-pip=23.0.1+dfsg-1 unzip=6.0-28"
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


FROM scratch AS steps
# apt's lists and archives live in a cache mount, so that no layer holds them and a rebuild downloads nothing.
COPY --chmod=755 <<'EOF' /apt-install
#!/bin/sh
# apt-install PACKAGE=VERSION...: from DEBIAN_MIRROR alone, whatever sources the OS image names
set -eu
# CUDA is in non-free, parts of what it depends on in contrib.
echo "deb $DEBIAN_MIRROR bookworm main contrib non-free" > /tmp/sources.list
mkdir -p /apt/archives/partial /apt/lists/partial
# A dated snapshot's index has expired by nature; its signature still holds.
apt="apt-get -qq -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false -o Dir::Cache=/apt
    -o Dir::State::Lists=/apt/lists -o Dir::Etc::SourceList=/tmp/sources.list -o Dir::Etc::SourceParts=-"
$apt update
DEBIAN_FRONTEND=noninteractive $apt install --yes --no-install-recommends "$@" > /tmp/apt.log 2>&1 || {
    tail -n 30 /tmp/apt.log >&2
    exit 1
}
# Logs and debconf's backups hold dates.
rm -rf /tmp/sources.list /tmp/apt.log /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache
EOF


FROM ${OS_IMAGE} AS wheels
ARG DEBIAN_MIRROR UNPACK_APT PYTRITON NCCL
RUN --mount=type=bind,from=steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install $UNPACK_APT
# The wheels are unpacked, not installed: only their binaries are wanted, and pip leaves no trace.
RUN --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host <<'EOF'
set -eu
if [ -e /run/secrets/host ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in [A-Z]*=*) export "$line" ;; esac
    done < /run/secrets/host
fi
if [ -e /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi
pip3 --no-input --disable-pip-version-check download --quiet --cache-dir /pip --no-deps --only-binary :all: \
    --dest /tmp/wheels "$PYTRITON" "$NCCL"
for wheel in /tmp/wheels/*.whl; do unzip -q "$wheel" -d /tmp/unpacked; done

cd /tmp/unpacked/pytriton/tritonserver
mkdir -p /out/opt/tritonserver /out/etc/ld.so.conf.d
cp -a bin backends caches /tmp/unpacked/nvidia_pytriton-*.dist-info/LICENSE /out/opt/tritonserver/
cp -a python_backend_stubs/3.11/triton_python_backend_stub /out/opt/tritonserver/backends/python/
cp -a /tmp/unpacked/nvidia_pytriton.libs /out/opt/tritonserver/lib
# A backend asks for the server's library by its plain name, which ldconfig does not index, as it is no SONAME: hence
# the link in a default folder. The loader takes both names for one library, as they are one file.
mkdir -p /out/usr/lib
(cd /out/opt/tritonserver/lib && ln -s libtritonserver-*.so libtritonserver.so)
ln -s /opt/tritonserver/lib/libtritonserver.so /out/usr/lib/libtritonserver.so
# The libraries' names are hashed, so nothing else on the system can pick them up by mistake.
echo /opt/tritonserver/lib > /out/etc/ld.so.conf.d/tritonserver.conf

cd /tmp/unpacked/nvidia/nccl
install -D -m 644 lib/libnccl.so.2 /out/usr/local/lib/libnccl.so.2
install -D -m 644 /tmp/unpacked/nvidia_nccl_cu12-*.dist-info/License.txt /out/usr/local/share/doc/nccl/License.txt
install -D -m 644 include/nccl.h /devel/usr/local/include/nccl.h
# In the wheel the server's own library may be written by everybody.
chmod -R go-w /out /devel
EOF


FROM ${OS_IMAGE} AS serving
ARG DEBIAN_MIRROR SERVING_APT
# OpenMPI's launcher brings the ssh client; its setuid helper serves host-based logins, which nobody does here.
RUN --mount=type=bind,from=steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install $SERVING_APT && chmod u-s /usr/lib/openssh/ssh-keysign
COPY --from=wheels /out/ /
RUN ldconfig && rm -f /var/cache/ldconfig/aux-cache
ENV PATH=/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 8000 8001 8002
WORKDIR /opt/tritonserver


FROM serving AS devel
ARG DEBIAN_MIRROR DEVEL_APT
RUN --mount=type=bind,from=steps,target=/steps --mount=type=cache,id=ftbuild-apt-bookworm,target=/apt,sharing=locked \
    /steps/apt-install $DEVEL_APT
# FindNCCL compiles a test without the include path that it has found: only the default places will do.
COPY --from=wheels /devel/ /
RUN ln -s libnccl.so.2 /usr/local/lib/libnccl.so && ldconfig

#!/bin/sh
# unpack-cuda.sh: put what runs of NCCL and CUDA in /wheels to /out, and what only compiles to /devel
#
# NCCL is that of nvidia-nccl-*. The parts of a CUDA toolkit of version 13, if there are any, share one folder. They are
# unpacked, not installed: only their files are needed, and pip leaves no trace.
set -eu
for wheel in /wheels/nvidia_c*.whl /wheels/nvidia_n*.whl; do
    [ ! -e "$wheel" ] || unzip -q -o "$wheel" -d /tmp/cuda
done
cd /tmp/cuda
mkdir -p /out/etc/ld.so.conf.d

# LICENCE COMPONENT: keep the licence of a component
licence() { install -D -m 644 "$1" "/out/usr/local/share/doc/$2/License.txt"; }

install -D -m 644 nvidia/nccl/lib/libnccl.so.2 /out/usr/local/lib/libnccl.so.2
install -D -m 644 nvidia/nccl/include/nccl.h /devel/usr/local/include/nccl.h
licence "$(find nvidia_nccl_cu*.dist-info -name License.txt)" nccl

if [ -d nvidia/cu13 ]; then
    toolkit=/usr/local/cuda
    mkdir -p "/devel$toolkit" "/out$toolkit/lib"
    cp -a nvidia/cu13/. "/devel$toolkit/"
    # nvcc and CMake want this folder, and programs that they link search it.
    ln -s lib "/out$toolkit/lib64"
    # Wheels name a library by its SONAME only; the linker needs the plain name.
    for library in "/devel$toolkit"/lib/lib*.so.*; do
        plain=${library##*/}
        ln -s "$plain" "/devel$toolkit/lib/${plain%%.so.*}.so"
    done
    # What server and backend link. The sample stack does without the mathematics.
    for name in cublas cublasLt cudart; do
        for library in "/devel$toolkit/lib/lib$name".so.*; do
            [ ! -e "$library" ] || mv "$library" "/out$toolkit/lib/"
        done
    done
    echo "$toolkit/lib" > /out/etc/ld.so.conf.d/cuda.conf
    chmod 755 "/devel$toolkit"/bin/* "/devel$toolkit"/nvvm/bin/*
    licence nvidia_cuda_runtime-*.dist-info/licenses/License.txt cuda
fi
chmod -R go-w /out /devel

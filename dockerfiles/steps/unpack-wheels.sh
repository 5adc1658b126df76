#!/bin/sh
# unpack-wheels.sh: put the server (wheel nvidia-pytriton) and NCCL (wheel nvidia-nccl-cu12) of /wheels to /out, NCCL's
# header to /devel
#
# The wheels are unpacked, not installed: only their binaries are needed, and pip leaves no trace.
set -eu
for wheel in /wheels/*.whl; do unzip -q "$wheel" -d /tmp/unpacked; done

cd /tmp/unpacked/pytriton/tritonserver
mkdir -p /out/opt/tritonserver /out/etc/ld.so.conf.d
cp -a bin backends caches /tmp/unpacked/nvidia_pytriton-*.dist-info/LICENSE /out/opt/tritonserver/
cp -a python_backend_stubs/3.11/triton_python_backend_stub /out/opt/tritonserver/backends/python/
cp -a /tmp/unpacked/nvidia_pytriton.libs /out/opt/tritonserver/lib
# Backends link the server's library by its plain name. ldconfig indexes SONAMEs only, so the link lies in a default
# folder; the loader treats both names as one library, since they are one file.
mkdir -p /out/usr/lib
(cd /out/opt/tritonserver/lib && ln -s libtritonserver-*.so libtritonserver.so)
ln -s /opt/tritonserver/lib/libtritonserver.so /out/usr/lib/libtritonserver.so
# The libraries' names are hashed, so no other program picks them up by mistake.
echo /opt/tritonserver/lib > /out/etc/ld.so.conf.d/tritonserver.conf

cd /tmp/unpacked/nvidia/nccl
install -D -m 644 lib/libnccl.so.2 /out/usr/local/lib/libnccl.so.2
install -D -m 644 /tmp/unpacked/nvidia_nccl_cu12-*.dist-info/License.txt /out/usr/local/share/doc/nccl/License.txt
install -D -m 644 include/nccl.h /devel/usr/local/include/nccl.h
# The wheel ships the server's library world-writable.
chmod -R go-w /out /devel

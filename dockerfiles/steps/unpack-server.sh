#!/bin/sh
# unpack-server.sh: put the server of the wheel nvidia-pytriton in /wheels to /out
#
# The wheel is unpacked, not installed: only its binaries are needed, and pip leaves no trace.
set -eu
unzip -q /wheels/nvidia_pytriton-*.whl -d /tmp/server

cd /tmp/server/pytriton/tritonserver
mkdir -p /out/opt/tritonserver /out/etc/ld.so.conf.d
cp -a bin backends caches /tmp/server/nvidia_pytriton-*.dist-info/licenses/LICENSE /out/opt/tritonserver/
cp -a python_backend_stubs/3.11/triton_python_backend_stub /out/opt/tritonserver/backends/python/
cp -a /tmp/server/nvidia_pytriton.libs /out/opt/tritonserver/lib
# That of another stub, which is left out.
rm /out/opt/tritonserver/lib/libpython3-*.so.*
# Backends link the server's library by its plain name. ldconfig indexes SONAMEs only, so the link lies in a default
# folder; the loader treats both names as one library, since they are one file.
mkdir -p /out/usr/lib
(cd /out/opt/tritonserver/lib && ln -s libtritonserver-*.so libtritonserver.so)
ln -s /opt/tritonserver/lib/libtritonserver.so /out/usr/lib/libtritonserver.so
# The libraries' names are hashed, so no other program picks them up by mistake.
echo /opt/tritonserver/lib > /out/etc/ld.so.conf.d/tritonserver.conf
# The wheel ships the server's library world-writable.
chmod -R go-w /out

# Triton Inference Server with the FasterTransformer backend: one recipe for every cell and base.
#
# Stages: toolchain -> backend -> runtime (serves) and toolchain -> pyt -> sdk (runtime + converters).
# On request: unittests (sdk + upstream's own unit tests), used-objects (what ccache has of both compiles).
# backend-info, pyt-info and unittests-info hold the figures of a compile: configure log, Ninja log, ccache, SASS list.
#
# Named contexts
#   base            serving image
#   toolchain-base  image with CUDA toolkit, host compiler, MPI, NCCL; may be the same as base
#   sources         ft/ (patched, 3rdparty/cutlass filled), backend/, repo-core-src/, common/, triton-backend/
#   recipe          steps/: the programs that the stages run; {backend,pyt}.cmake: initial caches for `cmake -C`;
#                   {toolchain,pyt,runtime,sdk}.txt: Python packages; for unittests: unittests.cmake, unittests.py
#   googletest      for unittests: its sources, or an empty folder
#   wheels          {toolchain,pyt,runtime,sdk}/: the wheels that {toolchain,pyt,runtime,sdk}.txt name by hash
#   objects         what was compiled elsewhere, as a storage of ccache; or an empty folder
#
# The secret `host`, optional, ends up neither in a layer nor in a layer's cache key: KEY=VALUE lines, the machine's
# settings: JOBS, JOB_BYTES (memory of one), HEAVIEST (the slowest sources), CCACHE_MAXSIZE, CCACHE_REMOTE_STORAGE
# (needs a network).
#
# No `# syntax=` line: it would pull a frontend image, which a closed network cannot.

# Host compilers: the newest that the toolkit accepts.
ARG HOST_CC=gcc
ARG HOST_CXX=g++
# apt packages that toolchain-base lacks.
ARG TOOLCHAIN_APT=""
# Targets of the two build trees.
ARG BACKEND_TARGETS="transformer-shared triton-fastertransformer-backend"
ARG PYT_TARGETS="th_transformer"
ARG UNITTEST_TARGETS="unittest"
# Folders of site-packages/nvidia/ whose headers and libraries the pyt tree needs and toolchain-base lacks.
ARG PYT_WHEEL_LIBS=""
# Patterns (find -path) of what is installed for the SDK image and that it does without.
ARG SDK_WITHOUT=""
# apt packages that a serving image must not contain.
ARG RUNTIME_PURGE="openssh-server"
# What the images say of themselves: cell, versions, GPUs.
ARG ABOUT=""


# Several stages, so that a change to how sources are compiled reinstalls no package.
FROM scratch AS pip-steps
COPY --from=recipe --chmod=755 steps/pip-install.sh /

FROM scratch AS layer-steps
COPY --from=recipe --chmod=755 steps/fixed-times.sh steps/put.sh /

FROM scratch AS image-steps
COPY --from=recipe --chmod=755 steps/ftbuild-image /

FROM scratch AS steps
COPY --from=recipe --chmod=755 steps/compile.sh steps/compilers.sh steps/heaviest.py steps/host-environment.sh steps/job-count.sh \
    steps/probe-storage.sh steps/slot.py /


FROM toolchain-base AS toolchain
USER root
ARG HOST_CC HOST_CXX TOOLCHAIN_APT
RUN <<'EOF'
set -eu
[ -n "$TOOLCHAIN_APT" ] || exit 0
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $TOOLCHAIN_APT
EOF

RUN --network=none \
    --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=toolchain.txt,target=/recipe/toolchain.txt \
    --mount=type=bind,from=wheels,source=toolchain,target=/wheels \
    /steps/pip-install.sh /recipe/toolchain.txt
# CMake's own languages read these; FindCUDA reads CUDA_HOST_COMPILER from the initial cache.
ENV CC=$HOST_CC CXX=$HOST_CXX CUDAHOSTCXX=$HOST_CXX


FROM toolchain AS backend
ARG BACKEND_TARGETS
RUN --network=none \
    --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=backend.cmake,target=/recipe/backend.cmake \
    --mount=type=bind,from=sources,target=/src,rw \
    --mount=type=bind,from=objects,target=/objects \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    SHIPPED='*/libtriton*.so' /steps/compile.sh backend /src/backend backends/fastertransformer $BACKEND_TARGETS && \
    # The name by which servers from 23.01 on look for functions that say how much of a queue a backend has room for.
    ln -s libtriton_fastertransformer.so /out/backends/fastertransformer/batchstrategy.so && rm -rf /build


FROM toolchain AS pyt
ARG PYT_TARGETS PYT_WHEEL_LIBS
RUN --network=none \
    --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=pyt.txt,target=/recipe/pyt.txt \
    --mount=type=bind,from=wheels,source=pyt,target=/wheels \
    /steps/pip-install.sh /recipe/pyt.txt
# Wheels contain a library under its SONAME only; the linker needs the plain name.
RUN <<'EOF'
set -eu
for name in $PYT_WHEEL_LIBS; do
    package=$(python3 -c "import nvidia.$name as package; print(package.__path__[0])")
    ln -s "$package"/include/*.h /usr/local/include/
    for library in "$package"/lib/lib*.so.*; do
        plain=$(basename "$library")
        ln -s "$library" "/usr/local/lib/${plain%%.so.*}.so"
    done
done
EOF

RUN --network=none \
    --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=pyt.cmake,target=/recipe/pyt.cmake \
    --mount=type=bind,from=sources,target=/src,rw \
    --mount=type=bind,from=objects,target=/objects \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    SHIPPED='*/libth_*.so' /steps/compile.sh pyt /src/ft lib $PYT_TARGETS && rm -rf /build


FROM scratch AS backend-info
COPY --from=backend /out/info/ /

FROM scratch AS pyt-info
COPY --from=pyt /out/info/ /

# What both compiles have used, for `invoke publish --objects`; no image of ours has it.
FROM scratch AS used-objects
COPY --from=backend /out/objects/ /
COPY --from=pyt /out/objects/ /


# After pyt, which leaves the objects that the tests link in ccache.
FROM pyt AS unittests-build
ARG UNITTEST_TARGETS
RUN --network=none \
    --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=unittests.cmake,target=/recipe/unittests.cmake \
    --mount=type=bind,from=sources,target=/src,rw \
    --mount=type=bind,from=googletest,target=/src/googletest \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    rm -r /out && SHIPPED='/build/tree/bin/*' /steps/compile.sh unittests /src/ft bin $UNITTEST_TARGETS && rm -rf /build

FROM scratch AS unittests-info
COPY --from=unittests-build /out/info/ /


# Packages are installed into a separate root: the images get the packages, not pip.
FROM toolchain AS runtime-python
RUN --network=none \
    --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=runtime.txt,target=/recipe/runtime.txt \
    --mount=type=bind,from=wheels,source=runtime,target=/wheels \
    /steps/pip-install.sh /recipe/runtime.txt /python


# The layers of images are made by steps that fix all times, not by COPY, which gives today's to the folders it fills.
# Layers that depend neither on sources nor on SMs come first: all cells on a base share them.
FROM base AS serving
USER root
ARG RUNTIME_PURGE
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps /steps/fixed-times.sh sh -eu <<'EOF'
for package in $RUNTIME_PURGE; do
    if dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^i'; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq purge --yes --auto-remove "$package"
        # Logs and debconf's backups hold dates.
        rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/debconf/*-old
    fi
done
# NGC's image already has a user with this id.
getent passwd 1000 > /dev/null || useradd --create-home --uid 1000 --user-group triton
EOF

RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=runtime-python,source=/python,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /
# For those who start the server by hand: without it no model over two stages of a pipeline answers (ftbuild/triton.py).
ENV NCCL_LAUNCH_MODE=GROUP


FROM serving AS runtime
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=backend,source=/out/backends,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /opt/tritonserver/backends
ARG ABOUT
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=image-steps,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /usr/local/bin
ENV FTBUILD_ABOUT=$ABOUT
USER 1000:1000
CMD ["ftbuild-image"]


FROM toolchain AS sdk-python
ARG SDK_WITHOUT
RUN --network=none \
    --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=sdk.txt,target=/recipe/sdk.txt \
    --mount=type=bind,from=wheels,source=sdk,target=/wheels \
    /steps/pip-install.sh /recipe/sdk.txt /python && \
    # An assembler for torch.compile, whose compiler is not installed.
    rm -f /python/usr/local/lib/python3*/dist-packages/torch/bin/ptxas
RUN --network=none <<'EOF'
set -euf
for pattern in $SDK_WITHOUT; do
    found=$(find /python -path "/python$pattern" -prune -print -exec rm -r {} +)
    [ -n "$found" ] || { echo "ftbuild: bases.yaml: sdk_without: nothing is $pattern" >&2; exit 1; }
done
EOF


# The contents of runtime and more, in another order: the gigabytes of packages lie below the layers that change.
FROM serving AS sdk
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=sdk-python,source=/python,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=backend,source=/out/backends,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /opt/tritonserver/backends
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=sources,source=ft/examples,target=/from/examples \
    --mount=type=bind,from=sources,source=backend/all_models,target=/from/all_models \
    --mount=type=bind,from=sources,source=backend/tools,target=/from/tools \
    --mount=type=bind,from=pyt,source=/out/lib,target=/from/lib \
    /steps/fixed-times.sh /steps/put.sh \
        /from/examples /opt/ftbuild/FasterTransformer/examples \
        /from/all_models /opt/ftbuild/fastertransformer_backend/all_models \
        /from/tools /opt/ftbuild/fastertransformer_backend/tools \
        /from/lib /opt/ftbuild/lib
ARG ABOUT
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=image-steps,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /usr/local/bin
ENV FTBUILD_ABOUT=$ABOUT
# The converters import each other as `examples.pytorch...`.
ENV PYTHONPATH=/opt/ftbuild/FasterTransformer
WORKDIR /opt/ftbuild
USER 1000:1000
CMD ["ftbuild-image"]


FROM sdk AS unittests
COPY --from=sources ft/tests/ /opt/ftbuild/FasterTransformer/tests/
COPY --from=unittests-build /out/bin/ /opt/ftbuild/unittests/bin/
COPY --from=recipe --chmod=755 unittests.py /opt/ftbuild/unittests/run

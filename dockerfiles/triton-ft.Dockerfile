# Triton Inference Server with the FasterTransformer backend: one recipe for every cell and base.
#
# Stages: toolchain -> backend -> runtime (the image to serve) and toolchain -> pyt -> sdk (runtime + converters).
# backend-info and pyt-info hold the figures of the compiles: configure log, ninja log, ccache, list of SASS.
#
# Named contexts
#   base            serving image
#   toolchain-base  image with CUDA toolkit, host compiler, MPI, NCCL; may be the same as base
#   sources         ft/ (patched, 3rdparty/cutlass filled), backend/, repo-core-src/, common/, triton-backend/
#   recipe          {backend,pyt}.cmake: initial caches for `cmake -C`; {toolchain,pyt,runtime,sdk}.txt: Python packages
#
# Secrets, both optional; neither ends up in a layer or in a layer's cache key
#   ca    CA bundle for downloads through a TLS-inspecting proxy
#   host  KEY=VALUE lines, the environment on this machine: JOBS, CCACHE_MAXSIZE, PIP_INDEX_URL, ...
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
# Folders of site-packages/nvidia/ whose headers and libraries the pyt tree needs and toolchain-base lacks.
ARG PYT_WHEEL_LIBS=""
# apt packages that a serving image must not carry.
ARG RUNTIME_PURGE="openssh-server"


FROM scratch AS steps
COPY <<'EOF' /host-environment
# Sourced: the machine's own settings into the environment. Read line by line, so values need no quoting.
if [ -e /run/secrets/host ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in [A-Z]*=*) export "$line" ;; esac
    done < /run/secrets/host
fi
EOF

COPY --chmod=755 <<'EOF' /pip-install
#!/bin/sh
# pip-install REQUIREMENTS [PIP OPTION...]: exactly the listed wheels, nothing resolved, nothing compiled
set -eu
. /steps/host-environment
requirements=$1
shift
grep -q '^[^#]' "$requirements" || exit 0
if [ -e /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi
# In the environment, as the pip of an older base does not know these two as options.
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
exec python3 -m pip --no-input --disable-pip-version-check install --quiet --no-warn-script-location --cache-dir /pip --no-deps \
    --only-binary :all: --requirement "$requirements" "$@"
EOF

COPY --chmod=755 <<'EOF' /slot
#!/bin/sh
# slot COMPILER ARGUMENT...: run it while holding one of JOBS slots, which all builds on this engine share
# A slot is a lock on a file: the kernel gives it back whatever becomes of its holder.
set -u
output= previous=
for word; do
    if [ "$previous" = -o ]; then output=$word; fi
    previous=$word
done
# One waits at the slots, the others in the order in which they came.
exec 9> /slots/queue
flock 9
while :; do
    slot=0
    while [ "$slot" -lt "${JOBS:-$(nproc)}" ]; do
        exec 8> "/slots/$slot"
        if flock --nonblock 8; then break 2; fi
        slot=$((slot + 1))
    done
    sleep 0.05
done
exec 9>&-
start=$(date +%s%3N)
"$@"
code=$?
printf '%s\t%s\t%s\t%s\n' "$start" "$(date +%s%3N)" "$slot" "$output" >> "$SLOT_LOG"
exit "$code"
EOF

COPY --chmod=755 <<'EOF' /compile
#!/bin/sh
# compile TREE SOURCE DESTINATION TARGET...: build one tree; libraries to /out/DESTINATION, figures to /out/info
set -eu
. /steps/host-environment
tree=$1 source=$2 destination=/out/$3
shift 3
build=/build/$tree info=/out/info
mkdir -p "$build" "$info" "$destination"

fail() { echo "ftbuild: $tree: $*" >&2; exit 1; }
# One number a line, sorted, of anything that matches, e.g. "80,86" or "sm_80 ... sm_86".
numbers() { grep -oE '[0-9]+' | sort -un | tr '\n' ' '; }

# The path of a source is the same in every container, so ccache needs no base directory. The compiler counts
# by content: its date differs between machines.
export CCACHE_DIR=/ccache CCACHE_COMPILERCHECK=content CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-20G}"
# Statistics of this build alone; the counters in the cache are shared with builds that run beside it.
export CCACHE_STATSLOG="$build/ccache.statslog"
# Only what ccache does not have is compiled, and waits for a slot.
export CCACHE_PREFIX=/steps/slot SLOT_LOG="$info/slots.tsv"

cmake -G Ninja -S "$source" -B "$build" -C "/recipe/$tree.cmake" > "$info/configure.log" 2>&1 || {
    cat "$info/configure.log" >&2
    fail "configure failed"
}
cat "$info/configure.log"
# Upstream matches SM by substring and falls back to four others without an error.
wanted=$(sed -n 's/^SM:[A-Z]*=//p' "$build/CMakeCache.txt" | numbers)
assigned=$(sed -n 's/.*Assign GPU architecture (sm=\(.*\))$/\1/p' "$info/configure.log" | numbers)
[ "$wanted" = "$assigned" ] || fail "configured for SM '$assigned', wanted '$wanted'"

date +%s%3N > "$info/started" # the zero of ninja's own log
touch "$SLOT_LOG"
ninja -C "$build" -j "${JOBS:-$(nproc)}" "$@" || fail "compile failed, see the line FAILED above"
cp "$build/.ninja_log" "$info/ninja_log"
ccache --show-log-stats --verbose > "$info/ccache.txt" 2>&1 || ccache --show-stats > "$info/ccache.txt" 2>&1
cat "$info/ccache.txt"

# What is loaded by name, and what that is linked with: FT v5.2 makes helper libraries besides, with symbols that
# nothing provides. libtritonserver.so is core's stub to link against: the server brings the real one.
ship() { # LIBRARY...
    for library; do
        if [ -e "$destination/${library##*/}" ]; then continue; fi
        cp "$library" "$destination"
        for name in $(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            ship $(find "$build" -name "$name" -type f ! -name libtritonserver.so)
        done
    done
}
ship $(find "$build" -name "$SHIPPED" -type f ! -name libtritonserver.so)
cd "$destination"
strip --strip-unneeded ./*.so
for library in ./*.so; do cuobjdump --list-elf "$library" 2> /dev/null || true; done > "$info/sass.txt"
# Every SM is embedded as PTX too, so a GPU would hide a wrong list: only the machine code tells.
compiled=$(grep -oE 'sm_[0-9]+' "$info/sass.txt" | numbers)
[ "$wanted" = "$compiled" ] || { cat "$info/sass.txt" >&2; fail "the libraries hold machine code for SM '$compiled', wanted '$wanted'"; }
ls -l "$destination"
EOF


FROM toolchain-base AS toolchain
USER root
ARG HOST_CC HOST_CXX TOOLCHAIN_APT
RUN <<'EOF'
set -eu
[ -n "$TOOLCHAIN_APT" ] || exit 0
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $TOOLCHAIN_APT
EOF
RUN --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=toolchain.txt,target=/recipe/toolchain.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    /steps/pip-install /recipe/toolchain.txt
# CMake reads these for the languages; FindCUDA takes CUDA_HOST_COMPILER from the initial cache.
ENV CC=$HOST_CC CXX=$HOST_CXX CUDAHOSTCXX=$HOST_CXX


FROM toolchain AS backend
ARG BACKEND_TARGETS
RUN --network=none \
    --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=backend.cmake,target=/recipe/backend.cmake \
    --mount=type=bind,from=sources,target=/src,rw \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    SHIPPED='libtriton*.so' /steps/compile backend /src/backend backends/fastertransformer $BACKEND_TARGETS && rm -rf /build


FROM toolchain AS pyt
ARG PYT_TARGETS PYT_WHEEL_LIBS
RUN --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=pyt.txt,target=/recipe/pyt.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    /steps/pip-install /recipe/pyt.txt
# Wheels carry a library under its SONAME only; the linker wants the plain name.
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
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    SHIPPED='libth_*.so' /steps/compile pyt /src/ft lib $PYT_TARGETS && rm -rf /build


FROM scratch AS backend-info
COPY --from=backend /out/info/ /

FROM scratch AS pyt-info
COPY --from=pyt /out/info/ /


# What pip installs goes into a root of its own: the images get the packages, not pip.
FROM toolchain AS runtime-python
RUN --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=runtime.txt,target=/recipe/runtime.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    mkdir /python && /steps/pip-install /recipe/runtime.txt --root /python --ignore-installed


FROM base AS runtime
USER root
ARG RUNTIME_PURGE
RUN <<'EOF'
set -eu
for package in $RUNTIME_PURGE; do
    if dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^i'; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq purge --yes --auto-remove "$package"
    fi
done
# NGC's image has a user with this id already.
getent passwd 1000 > /dev/null || useradd --create-home --uid 1000 --user-group triton
EOF
COPY --from=runtime-python /python/ /
COPY --from=backend /out/backends/ /opt/tritonserver/backends/
USER 1000:1000


FROM toolchain AS sdk-python
RUN --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=sdk.txt,target=/recipe/sdk.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    mkdir /python && /steps/pip-install /recipe/sdk.txt --root /python --ignore-installed


FROM runtime AS sdk
COPY --from=sdk-python /python/ /
COPY --from=sources ft/examples/ /opt/ftbuild/FasterTransformer/examples/
COPY --from=sources backend/all_models/ /opt/ftbuild/fastertransformer_backend/all_models/
COPY --from=sources backend/tools/ /opt/ftbuild/fastertransformer_backend/tools/
COPY --from=pyt /out/lib/ /opt/ftbuild/lib/
# The converters import each other as examples.pytorch...
ENV PYTHONPATH=/opt/ftbuild/FasterTransformer
WORKDIR /opt/ftbuild

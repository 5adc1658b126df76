# Triton Inference Server with the FasterTransformer backend: one recipe for every cell and base.
#
# Stages: toolchain -> backend -> runtime (the image to serve) and toolchain -> pyt -> sdk (runtime + converters).
# Asked for by name: unittests (sdk + upstream's own unit tests).
# backend-info, pyt-info and unittests-info hold the figures of the compiles: configure log, ninja log, ccache, list of SASS.
#
# Named contexts
#   base            serving image
#   toolchain-base  image with CUDA toolkit, host compiler, MPI, NCCL; may be the same as base
#   sources         ft/ (patched, 3rdparty/cutlass filled), backend/, repo-core-src/, common/, triton-backend/
#   recipe          {backend,pyt}.cmake: initial caches for `cmake -C`; {toolchain,pyt,runtime,sdk}.txt: Python packages;
#                   for unittests: unittests.cmake and unittests.py
#   googletest      for unittests: its sources, or an empty folder
#
# Secrets, both optional; neither ends up in a layer or in a layer's cache key
#   ca    CA bundle for downloads through a TLS-inspecting proxy
#   host  KEY=VALUE lines, the environment on this machine: JOBS, JOB_BYTES (memory of one), HEAVIEST (sources that
#         take longest), CCACHE_MAXSIZE, CCACHE_REMOTE_STORAGE (wants a network), PIP_INDEX_URL, ...
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
# apt packages that a serving image must not carry.
ARG RUNTIME_PURGE="openssh-server"


FROM scratch AS pip-steps
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


# A stage of its own: what is installed does not depend on how things are compiled.
FROM pip-steps AS steps
COPY --chmod=755 <<'EOF' /slot
#!/usr/bin/env -S python3 -I -S
"""slot COMPILER ARGUMENT...: run it while holding one of JOBS slots, which all builds on this engine share

A slot is a lock on a file: the kernel gives it back whatever becomes of its holder. Adds a line to SLOT_LOG:
start and end in milliseconds since 1970, slot, output, CPU seconds, memory of the largest process in bytes.
"""
import fcntl, os, sys, time

def take(jobs):
    slots = [open("/slots/%d" % number, "w") for number in range(jobs)]
    # One waits at the slots, the others in the order in which they came.
    with open("/slots/queue", "w") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        while True:
            for number, slot in enumerate(slots):
                try:
                    fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return number, slot
                except BlockingIOError:
                    pass
            time.sleep(0.02)

command = sys.argv[1:]
output = command[command.index("-o") + 1] if "-o" in command else ""
number, slot = take(int(os.environ.get("JOBS") or os.cpu_count()))
start = time.time()
_, status, used = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
row = (int(start * 1000), int(time.time() * 1000), number, output)
row += ("%.2f" % (used.ru_utime + used.ru_stime), used.ru_maxrss * 1024)
with open(os.environ["SLOT_LOG"], "a") as log:
    log.write("\t".join(map(str, row)) + "\n")
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
EOF

COPY --chmod=755 <<'EOF' /heaviest-first
#!/usr/bin/env -S python3 -I -S
"""heaviest-first BUILD.NINJA NAME...: move the compiles of these sources to the front, in this order

A NAME is that of a file without its endings. Of what is ready, ninja starts first what stands first in its file
(from 1.12 on: among equally long chains).
"""
import re, sys

file, *names = sys.argv[1:]
ranks = {name: rank for rank, name in enumerate(names)}
with open(file) as opened:
    text = opened.read()
found = re.finditer(r"^build (?:\S*/)?([^/\s.]+)[^/\s]*\.o:.*\n(?:[ \t]+.*\n)*", text, re.M)
heavy = sorted((ranks[match[1]], match[0]) for match in found if match[1] in ranks)
for _, statement in heavy:
    text = text.replace(statement, "", 1)
first = re.search("^build ", text, re.M).start()
with open(file, "w") as opened:
    opened.write("".join([text[:first], *(statement for _, statement in heavy), text[first:]]))
EOF

COPY --chmod=755 <<'EOF' /jobs-that-fit
#!/bin/sh
# jobs-that-fit: print JOBS, or how many jobs of JOB_BYTES fit into the memory that this step may use
# The limit of a builder is not its engine's. Version 1 of cgroups tells that of all groups above (kernel documentation,
# cgroup-v1/memory.rst), version 2 within a container only its own.
set -eu
jobs=${JOBS:-$(nproc)}
limit=$(sed -n 's/^hierarchical_memory_limit //p' /sys/fs/cgroup/memory/memory.stat 2> /dev/null ||
    cat /sys/fs/cgroup/memory.max 2> /dev/null || echo max)
fit=$jobs
if [ "$limit" != max ] && [ -n "${JOB_BYTES:-}" ]; then fit=$((limit / JOB_BYTES)); fi
if [ "$fit" -lt 1 ]; then fit=1; fi
if [ "$fit" -lt "$jobs" ]; then
    echo "ftbuild: compiling with $fit instead of $jobs jobs: the builder may use $((limit >> 20)) MiB of memory" >&2
    jobs=$fit
fi
echo "$jobs"
EOF

COPY --chmod=755 <<'EOF' /storage-answers
#!/bin/sh
# storage-answers: whether ccache gets an answer from CCACHE_REMOTE_STORAGE, if only that an object is not there
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo 'int ftbuild_asks;' > "$folder/probe.c"
CCACHE_DIR="$folder" CCACHE_STATSLOG="$folder/log" timeout 10 \
    ccache "$CC" -c "$folder/probe.c" -o "$folder/probe.o" > /dev/null 2>&1
grep -qsE '^(remote|secondary)_storage_(hit|miss)$' "$folder/log"
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
# What became of each source of this build; the counters in the cache are shared with builds that run beside it.
export CCACHE_STATSLOG="$info/ccache.statslog"
JOBS=$(/steps/jobs-that-fit)
export JOBS
if [ -n "${CCACHE_REMOTE_STORAGE:-}" ]; then
    # By default ccache waits a tenth of a second for a connection, too short where all cores compile. What the user
    # says comes last, and counts. The second name is that before ccache 4.7.
    CCACHE_REMOTE_STORAGE=$(echo "$CCACHE_REMOTE_STORAGE" | sed -E 's/(^| )((redis|http)[^| ]*)/\1\2|connect-timeout=2000/g')
    export CCACHE_SECONDARY_STORAGE="$CCACHE_REMOTE_STORAGE"
    # One that is silent would cost each compile its timeout; one that ccache does not understand, the build.
    if /steps/storage-answers; then
        echo "ftbuild: $tree: ccache shares what it compiles through a remote storage"
    else
        echo "ftbuild: $tree: CCACHE_REMOTE_STORAGE does not answer $(ccache --version | head -n 1) here: going on without"
        unset CCACHE_REMOTE_STORAGE CCACHE_SECONDARY_STORAGE
    fi
fi
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
/steps/heaviest-first "$build/build.ninja" ${HEAVIEST:-}
times > "$info/times" # CPU time before and after ninja, each of this shell and of all that it ran
ninja -C "$build" -j "$JOBS" "$@" || fail "compile failed, see the line FAILED above"
cp "$build/.ninja_log" "$info/ninja_log"
times >> "$info/times"
ccache --show-log-stats --verbose > "$info/ccache.txt" 2>&1 || ccache --show-stats > "$info/ccache.txt" 2>&1
cat "$info/ccache.txt"

# What is loaded by name, and what that is linked with: FT v5.2 makes helper libraries besides, with symbols that
# nothing provides. libtritonserver.so is core's stub to link against: the server brings the real one.
ship() { # LIBRARY OR PROGRAM...
    for library; do
        if [ -e "$destination/${library##*/}" ]; then continue; fi
        cp "$library" "$destination"
        for name in $(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            ship $(find "$build" -name "$name" -type f ! -name libtritonserver.so)
        done
    done
}
ship $(find "$build" -path "$SHIPPED" -type f ! -name libtritonserver.so)
cd "$destination"
strip --strip-unneeded ./*
for library in ./*; do cuobjdump --list-elf "$library" 2> /dev/null || true; done > "$info/sass.txt"
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
RUN --mount=type=bind,from=pip-steps,target=/steps \
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
    SHIPPED='*/libtriton*.so' /steps/compile backend /src/backend backends/fastertransformer $BACKEND_TARGETS && rm -rf /build


FROM toolchain AS pyt
ARG PYT_TARGETS PYT_WHEEL_LIBS
RUN --mount=type=bind,from=pip-steps,target=/steps \
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
    SHIPPED='*/libth_*.so' /steps/compile pyt /src/ft lib $PYT_TARGETS && rm -rf /build


FROM scratch AS backend-info
COPY --from=backend /out/info/ /

FROM scratch AS pyt-info
COPY --from=pyt /out/info/ /


# After pyt, which leaves what the tests link in ccache; under its name, since ccache takes nvcc's -gencode for an
# option of debug information, with which the folder of a compile counts (ccache(1), hash_dir).
FROM pyt AS unittests-build
ARG UNITTEST_TARGETS
RUN --network=none \
    --mount=type=bind,from=steps,target=/steps \
    --mount=type=bind,from=recipe,source=unittests.cmake,target=/recipe/pyt.cmake \
    --mount=type=bind,from=sources,target=/src,rw \
    --mount=type=bind,from=googletest,target=/src/googletest \
    --mount=type=cache,id=ftbuild-ccache,target=/ccache,sharing=shared \
    --mount=type=cache,id=ftbuild-slots,target=/slots,sharing=shared \
    --mount=type=secret,id=host \
    rm -r /out && SHIPPED='/build/pyt/bin/*' /steps/compile pyt /src/ft bin $UNITTEST_TARGETS && rm -rf /build

FROM scratch AS unittests-info
COPY --from=unittests-build /out/info/ /


# What pip installs goes into a root of its own: the images get the packages, not pip.
FROM toolchain AS runtime-python
RUN --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=runtime.txt,target=/recipe/runtime.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    mkdir /python && /steps/pip-install /recipe/runtime.txt --root /python --ignore-installed


# What depends neither on sources nor on SM comes first: the images of all cells on a base have these layers in common.
FROM base AS serving
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


FROM serving AS runtime
COPY --from=backend /out/backends/ /opt/tritonserver/backends/
USER 1000:1000


FROM toolchain AS sdk-python
RUN --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=sdk.txt,target=/recipe/sdk.txt \
    --mount=type=cache,id=ftbuild-pip,target=/pip --mount=type=secret,id=ca --mount=type=secret,id=host \
    mkdir /python && /steps/pip-install /recipe/sdk.txt --root /python --ignore-installed


# The runtime image and more, but for the order: gigabytes of packages lie below what changes.
FROM serving AS sdk
COPY --from=sdk-python /python/ /
COPY --from=backend /out/backends/ /opt/tritonserver/backends/
COPY --from=sources ft/examples/ /opt/ftbuild/FasterTransformer/examples/
COPY --from=sources backend/all_models/ /opt/ftbuild/fastertransformer_backend/all_models/
COPY --from=sources backend/tools/ /opt/ftbuild/fastertransformer_backend/tools/
COPY --from=pyt /out/lib/ /opt/ftbuild/lib/
# The converters import each other as examples.pytorch...
ENV PYTHONPATH=/opt/ftbuild/FasterTransformer
WORKDIR /opt/ftbuild
USER 1000:1000


FROM sdk AS unittests
COPY --from=sources ft/tests/ /opt/ftbuild/FasterTransformer/tests/
COPY --from=unittests-build /out/bin/ /opt/ftbuild/unittests/bin/
COPY --from=recipe --chmod=755 unittests.py /opt/ftbuild/unittests/run

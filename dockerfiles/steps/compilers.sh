# Sourced by the steps that compile: settings of the machine, of ccache and of the compilers, and the number of JOBS.
# shellcheck shell=sh
# shellcheck source=/dev/null
. /steps/host-environment.sh
# What compilers write for __DATE__ and __TIME__ (gcc's manual, environment variables).
export SOURCE_DATE_EPOCH=315532800
# A source has the same path in every container, so ccache needs no base directory. The compiler is identified by
# content, since its modification time differs between machines. The folder of the build is in no object: ccache takes
# nvcc's -gencode for an option of debugging, with which it would be (ccache(1), hash_dir).
export CCACHE_DIR=/ccache CCACHE_COMPILERCHECK=content CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-20G}"
JOBS=$(/steps/job-count.sh)
export JOBS
# nvcc writes its process id into the names of what is internal to a source: here it has one in every build. ccache gives
# back no object that was compiled without this.
export COMPILER_PRELOAD=/build/process-id.so CCACHE_EXTRAFILES=/build/process-id.so
mkdir -p /build
echo 'int getpid(void) { return 1; }' | "${CC:-cc}" -shared -fPIC -x c -o "$COMPILER_PRELOAD" -
# ccache runs the compiler, and so takes a slot, on a miss only.
export CCACHE_PREFIX=/steps/slot.py

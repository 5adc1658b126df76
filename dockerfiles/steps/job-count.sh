#!/bin/sh
# job-count.sh: print JOBS, or fewer where the memory limit holds fewer jobs of JOB_BYTES each
#
# A builder's limit may be lower than the engine's. Version 1 of cgroups reports the lowest limit of all ancestors
# (kernel documentation, cgroup-v1/memory.rst); within a container, version 2 shows the container's own only.
set -eu
jobs=${JOBS:-$(nproc)}
limit=$(sed -n 's/^hierarchical_memory_limit //p' /sys/fs/cgroup/memory/memory.stat 2> /dev/null ||
    cat /sys/fs/cgroup/memory.max 2> /dev/null || echo max)
fit=$jobs
if [ "$limit" != max ] && [ -n "${JOB_BYTES:-}" ]; then fit=$((limit / JOB_BYTES)); fi
if [ "$fit" -lt 1 ]; then fit=1; fi
if [ "$fit" -lt "$jobs" ]; then
    echo "ftbuild: compiling with $fit instead of $jobs jobs: the builder's memory limit is $((limit >> 20)) MiB" >&2
    jobs=$fit
fi
echo "$jobs"

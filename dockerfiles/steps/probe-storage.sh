#!/bin/sh
# probe-storage.sh: succeed if ccache gets an answer from CCACHE_REMOTE_STORAGE, a miss included
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo 'int ftbuild_probe;' > "$folder/probe.c"
CCACHE_DIR="$folder" CCACHE_STATSLOG="$folder/log" timeout 10 \
    ccache "$CC" -c "$folder/probe.c" -o "$folder/probe.o" > /dev/null 2>&1
grep -qsE '^(remote|secondary)_storage_(hit|miss)$' "$folder/log"

#!/bin/sh
# compile.sh TREE SOURCE DESTINATION TARGET...
#
# Builds one tree. SHIPPED is a `find -path` pattern: what it matches goes to /out/DESTINATION, figures to /out/info.
set -eu
# shellcheck source=/dev/null
. /steps/compilers.sh
tree=$1 source=$2 destination=/out/$3
shift 3
build=/build/tree info=/out/info
mkdir -p "$build" "$info" "$destination"

fail() { echo "ftbuild: $tree: $*" >&2; exit 1; }
# Print the numbers in the input, sorted: "80 86 " for "80,86" or "sm_80 ... sm_86".
numbers() { grep -oE '[0-9]+' | sort -un | tr '\n' ' '; }

# No object that was compiled of sources with other times is given back.
export CCACHE_NAMESPACE=fixed-times
# Results of this build alone; concurrent builds share the counters in the cache.
export CCACHE_STATSLOG="$info/ccache.statslog" SLOT_LOG="$info/slots.tsv"
if [ -n "${CCACHE_REMOTE_STORAGE:-}" ]; then
    # ccache's default connect timeout of 100 ms is too short while all cores compile. The default goes before the
    # user's own attributes, which override it.
    CCACHE_REMOTE_STORAGE=$(echo "$CCACHE_REMOTE_STORAGE" |
        sed -E 's/(^| )((redis|http)[^| ]*)/\1\2|connect-timeout=2000/g')
    # The variable's name before ccache 4.7.
    export CCACHE_SECONDARY_STORAGE="$CCACHE_REMOTE_STORAGE"
    # A silent storage would cost every compile its timeout, a kind that ccache does not know the whole build.
    if /steps/probe-storage.sh; then
        echo "ftbuild: $tree: ccache shares objects through the remote storage"
    else
        version=$(ccache --version | head -n 1)
        echo "ftbuild: $tree: CCACHE_REMOTE_STORAGE does not answer $version: building without it"
        unset CCACHE_REMOTE_STORAGE CCACHE_SECONDARY_STORAGE
    fi
fi

# What this tree takes from ccache or puts into it is kept, in the form of a storage that another build can read
# (ccache(1), file storage backend). Not with a remote storage: others have put into it what they wanted.
used=/out/objects
mkdir -p "$used"
brought=$(find /objects -mindepth 1 -print -quit 2> /dev/null) || true
if [ -n "$brought" ]; then
    # No other objects are there, so that each one found is known to be of those.
    export CCACHE_DIR=/build/ccache CCACHE_REMOTE_STORAGE="file:/objects|read-only file:$used"
elif [ -z "${CCACHE_REMOTE_STORAGE:-}" ]; then
    export CCACHE_REMOTE_STORAGE="file:$used" CCACHE_RESHARE=1
fi

cmake -G Ninja -S "$source" -B "$build" -C "/recipe/$tree.cmake" > "$info/configure.log" 2>&1 || {
    cat "$info/configure.log" >&2
    fail "configure failed"
}
cat "$info/configure.log"
# Upstream matches SM by substring and silently falls back to four others.
wanted=$(sed -n 's/^SM:[A-Z]*=//p' "$build/CMakeCache.txt" | numbers)
assigned=$(sed -n 's/.*Assign GPU architecture (sm=\(.*\))$/\1/p' "$info/configure.log" | numbers)
[ "$wanted" = "$assigned" ] || fail "configured for SM '$assigned', wanted '$wanted'"

# What is internal to a source, nvcc names by the time of the source and by the folder that it runs in, if the source defines
# nothing that is not (cudafe++, module id): so each has one time, and both trees, which share objects, one folder.
find /src "$build" -name '*.cu' -exec touch -d "@$SOURCE_DATE_EPOCH" {} +

date +%s%3N > "$info/started" # the zero of Ninja's log
touch "$SLOT_LOG"
# The pyt tree compiles beside the backend tree. Where torch has Triton's C++ ABI, both have the same objects: they begin
# at two ends, and what one has compiled the other finds in ccache.
case $tree in
    pyt) heaviest=$(sed -n 's/^-- USE_CXX11_ABI=True$/last/p' "$info/configure.log") ;;
esac
# shellcheck disable=SC2086 # a list of names
/steps/heaviest.py "${heaviest:-first}" "$build/build.ninja" ${HEAVIEST:-}
times > "$info/times" # CPU time before and after Ninja, of this shell and of its children
ninja -C "$build" -j "$JOBS" "$@" || fail "compile failed, see the line FAILED above"
cp "$build/.ninja_log" "$info/ninja_log"
times >> "$info/times"
ccache --show-log-stats --verbose > "$info/ccache.txt" 2>&1 || ccache --show-stats > "$info/ccache.txt" 2>&1
cat "$info/ccache.txt"
if [ -n "$brought" ]; then
    # Of those that were brought, the ones that were used: ccache has copied them into its folder as ab/c...R, which is
    # abc... in a storage.
    (cd "$CCACHE_DIR" && find . -type f -name '*[RM]') | sed -E 's,^\./,,; s,/,,g; s,[RM]$,,; s,^..,&/,' |
        while read -r object; do
            if [ -e "/objects/$object" ] && ! [ -e "$used/$object" ]; then
                mkdir -p "$used/${object%/*}"
                cp "/objects/$object" "$used/$object"
            fi
        done
fi
rm -f "$used/CACHEDIR.TAG"

# Copy files and the libraries of this tree that they link. FT v5.2 builds further libraries, with undefined symbols.
# libtritonserver.so is core's link stub; the server brings the real library.
ship() { # LIBRARY OR PROGRAM...
    for library; do
        if [ -e "$destination/${library##*/}" ]; then continue; fi
        cp "$library" "$destination"
        for name in $(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            # shellcheck disable=SC2046 # no path below /build holds a space
            ship $(find "$build" -name "$name" -type f ! -name libtritonserver.so)
        done
    done
}
# shellcheck disable=SC2046 # as above
ship $(find "$build" -path "$SHIPPED" -type f ! -name libtritonserver.so)
cd "$destination"
strip --strip-unneeded ./*
for library in ./*; do cuobjdump --list-elf "$library" 2> /dev/null || true; done > "$info/sass.txt"
# PTX is embedded for every SM, so a wrong list would run on a GPU all the same: only machine code proves the SM.
compiled=$(grep -oE 'sm_[0-9]+' "$info/sass.txt" | numbers)
[ "$wanted" = "$compiled" ] || {
    cat "$info/sass.txt" >&2
    fail "the libraries hold machine code for SM '$compiled', wanted '$wanted'"
}
ls -l "$destination"

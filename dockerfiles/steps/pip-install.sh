#!/bin/sh
# pip-install.sh REQUIREMENTS [ROOT]
#
# Installs the listed wheels from /wheels and nothing else: no index is asked, no dependency is resolved, nothing is
# compiled. pip compares every wheel with its hash. With ROOT they go to that folder, to be copied into an image.
set -eu
requirements=$1 root=${2:-}
[ -z "$root" ] || mkdir "$root"
grep -q '^[^#]' "$requirements" || exit 0
# By environment, since the pip of older bases lacks these options.
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
# shellcheck disable=SC2086 # no words, or three
python3 -m pip --no-input --disable-pip-version-check install --quiet --no-warn-script-location \
    --no-cache-dir --no-index --find-links /wheels --require-hashes --no-deps --only-binary :all: --no-compile \
    --requirement "$requirements" ${root:+--root "$root" --ignore-installed}
[ -n "$root" ] || exit 0
# Bytecode by the source's hash, not by its time (PEP 552), and in one order: the same sources give the same files. What
# does not compile is of another Python and never imported.
PYTHONHASHSEED=0 python3 -m compileall -q -r 100 --invalidation-mode unchecked-hash -d / "$root" > /dev/null || true

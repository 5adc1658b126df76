#!/bin/sh
# pip-install.sh REQUIREMENTS [PIP OPTION...]
#
# Installs the listed wheels from /wheels and nothing else: no index is asked, no dependency is resolved, nothing is
# compiled. pip compares every wheel with its hash.
set -eu
requirements=$1
shift
grep -q '^[^#]' "$requirements" || exit 0
# By environment, since the pip of older bases lacks these options.
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
exec python3 -m pip --no-input --disable-pip-version-check install --quiet --no-warn-script-location \
    --no-cache-dir --no-index --find-links /wheels --require-hashes --no-deps --only-binary :all: \
    --requirement "$requirements" "$@"

#!/bin/sh
# pip-install.sh REQUIREMENTS [PIP OPTION...]
#
# Installs the listed wheels and nothing else: no dependency is resolved, nothing is compiled.
set -eu
# shellcheck source=/dev/null
. /steps/host-environment.sh
requirements=$1
shift
grep -q '^[^#]' "$requirements" || exit 0
if [ -e /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi
# By environment, since the pip of older bases lacks these options.
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
exec python3 -m pip --no-input --disable-pip-version-check install --quiet --no-warn-script-location \
    --cache-dir /pip --no-deps --only-binary :all: --requirement "$requirements" "$@"

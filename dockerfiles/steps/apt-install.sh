#!/bin/sh
# apt-install.sh PACKAGE=VERSION...
#
# Installs from DEBIAN_MIRROR alone, whichever sources the OS image lists. apt's lists and archives live in a cache
# mount: no layer holds them, and a rebuild downloads nothing.
set -eu
# CUDA is in non-free, some of its dependencies in contrib.
echo "deb $DEBIAN_MIRROR bookworm main contrib non-free" > /tmp/sources.list
mkdir -p /apt/archives/partial /apt/lists/partial
apt() {
    # The index of a dated snapshot has expired by design; its signature still holds.
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false \
        -o Dir::Cache=/apt -o Dir::State::Lists=/apt/lists -o Dir::Etc::SourceList=/tmp/sources.list \
        -o Dir::Etc::SourceParts=- "$@"
}
apt update
apt install --yes --no-install-recommends "$@" > /tmp/apt.log 2>&1 || {
    tail -n 30 /tmp/apt.log >&2
    exit 1
}
# Logs and debconf's backups hold dates.
rm -rf /tmp/sources.list /tmp/apt.log /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache

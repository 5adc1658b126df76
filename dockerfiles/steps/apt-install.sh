#!/bin/sh
# apt-install.sh: install the package files in /debian, and compare the result with /debian/installed.txt
#
# /debian/without.control, if there is one, is that of an empty package, which provides the names of packages that the
# image does without.
set -eu
apt() {
    # The files are the only source: a package that is missing among them is an error.
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Dir::State::Lists=/tmp/apt-lists \
        -o Dir::Cache=/tmp/apt-cache -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null "$@"
}
mkdir -p /tmp/apt-lists/partial /tmp/apt-cache/archives/partial
set -- /debian/*.deb
if [ -e /debian/without.control ]; then
    install -D -m 644 /debian/without.control /tmp/without/DEBIAN/control
    dpkg-deb --root-owner-group --build /tmp/without /tmp/without.deb > /dev/null
    set -- "$@" /tmp/without.deb
fi
apt install --yes --no-install-recommends "$@" > /tmp/apt.log 2>&1 || {
    tail -n 30 /tmp/apt.log >&2
    exit 1
}
dpkg-query --show --showformat='${Package} ${Version} ${Architecture}\n' | LC_ALL=C sort > /tmp/installed.txt
diff -U 0 /debian/installed.txt /tmp/installed.txt >&2 || {
    echo "ftbuild: these packages differ from debian.lock.yaml (-: locked, +: installed)" >&2
    exit 1
}
# Logs and debconf's backups hold dates; so would the trace of a removed folder of the layer below. On trixie
# apt's caches were found in the default folder too.
rm -rf /tmp/apt-lists /tmp/apt-cache /tmp/apt.log /tmp/installed.txt /tmp/without /tmp/without.deb /var/log/apt/* /var/log/dpkg.log \
    /var/log/alternatives.log /var/cache/apt/*.bin /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache

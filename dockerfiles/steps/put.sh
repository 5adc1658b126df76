#!/bin/sh
# put.sh FOLDER PLACE [FOLDER PLACE]...
#
# Copies the contents of folders to places, as COPY does: what exists of the folders there keeps its mode.
set -eu
while [ $# -gt 0 ]; do
    mkdir -p "$2"
    tar --create --directory "$1" --sort=name --numeric-owner --owner=0 --group=0 . |
        tar --extract --directory "$2" --no-overwrite-dir --keep-directory-symlink
    shift 2
done

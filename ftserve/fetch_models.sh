#!/bin/sh
# Fetches a model repository from object storage, by rclone:  fetch URI FOLDER
# It ends with 0 only if the folder has all that the storage had at one moment, and nothing else. Until then
# no model there has its config.pbtxt, without which no server takes it for one.
set -eu
uri=$1 folder=$2
remote=models:${uri#*://}
mark=.fetched

fail() {
    echo "fetch: $*" >&2
    exit 1
}

shown() { # LINES: as one
    printf '%s' "${1:-nothing}" | tr '\n' ' '
}

# A line for each file, its path first. Rclone ends with success where there is nothing.
listing() { # WHERE FORMAT
    found=$(rclone lsf --recursive --files-only --use-server-modtime --format "$2" --exclude "/$mark" "$1") ||
        return
    printf '%s\n' "$found" | LC_ALL=C sort
}

listed() {
    listing "$remote" pst || fail "$uri cannot be listed: is this its name, and may these credentials read it?"
}

synchronize() { # FILTER...
    rclone sync --checksum --transfers=8 --retries=5 --stats=30s --exclude "/$mark" "$@" "$remote" "$folder" ||
        fail "$uri was not fetched as a whole"
}

without_configurations() {
    rm -f "$folder"/*/config.pbtxt
}

require_repository() { # LISTING
    if ! printf '%s\n' "$1" | grep -q '^[^/]*/config\.pbtxt;'; then
        first=$(printf '%s\n' "$1" | sed -n '1,3s/;[^;]*;[^;]*$//p')
        fail "$uri is no model repository, since it has no MODEL/config.pbtxt. It has: $(shown "$first")"
    fi
}

# Names such as .. are left out by rclone, which ends with success.
require_every_file() { # LISTING
    expected=$(printf '%s\n' "$1" | sed 's/;[^;]*$//')
    there=$(listing "$folder" ps)
    if [ "$there" != "$expected" ]; then
        missing=$(printf '%s\n' "$expected" | grep -vxF -e "$there" | sed 's/;[^;]*$//')
        fail "$uri has names that no file can have: $(shown "$missing")"
    fi
}

command -v rclone >/dev/null || fail "rclone is not installed"
# Rclone would take what stands before a colon for a remote.
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -e "$folder/$mark" ]; then
    fail "$folder has files that were not fetched, and would be deleted: name an empty folder"
fi

wanted=$(listed)
for _ in 1 2 3; do
    require_repository "$wanted"
    mkdir -p "$folder"
    echo "$uri" >"$folder/$mark"
    trap without_configurations EXIT
    without_configurations
    synchronize --exclude '/*/config.pbtxt'
    synchronize
    before=$wanted
    wanted=$(listed)
    if [ "$wanted" = "$before" ]; then
        require_every_file "$wanted"
        trap - EXIT
        exit 0
    fi
    echo "fetch: $uri has changed meanwhile: once more" >&2
done
fail "$uri changes while it is fetched: write another model to another path"

# Sourced by other steps: exports the machine's settings, the `host` secret.
# shellcheck shell=sh
# Read line by line, so that values need no quoting.
if [ -e /run/secrets/host ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in [A-Z]*=*) export "${line?}" ;; esac
    done < /run/secrets/host
fi

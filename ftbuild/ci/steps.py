"""Command lines of the jobs, the same in every CI system.

The variables `TRITON`, `SMS` (`80` or `80,86`) and `BASE` select the cell; images go to `REGISTRY` and
`STAGE`. Each line prepares its machine: `./bootstrap` installs what is missing, then runs `invoke`.
"""

from __future__ import annotations

TEST = ".ci/run"
READY = "./bootstrap"
_CELL = '--triton "$TRITON" --sm "$SMS" --base "$BASE"'
_STAGED = '--registry "$REGISTRY" --stage "$STAGE"'

BUILD = f"./bootstrap build {_CELL}"
# Takes what the registry has, where a trusted signer has signed it.
TAKE = f'./bootstrap build --from "$REGISTRY" {_CELL}'
PUSH = f"./bootstrap registry.stage {_STAGED} {_CELL}"
PULL = f"./bootstrap registry.pull {_STAGED} {_CELL}"
# Ends with 4 if no GPU fits: nothing was tested, so the job fails and nothing is published.
SMOKE = f"./bootstrap smoke {_CELL}"
PUBLISH = f"./bootstrap publish {_STAGED} {_CELL}"
AUDIT = "./bootstrap audit"

# Variables hold user and password, so that neither appears in a process list or a log.
LOGIN = (
    'printf "%s" "$REGISTRY_PASSWORD"'
    ' | docker login "${REGISTRY%%/*}" --username "$REGISTRY_USER" --password-stdin'
)
LOGOUT = 'docker logout "${REGISTRY%%/*}"'

# Records and logs in the work folder: <cell>/<key>/FILE.
VERIFY_RECORD = ".ftbuild/*/*/verify.json"
# For the SBOM: the publishing machine does not have the images.
INVENTORIES = ".ftbuild/*/*/inventory-*.json"
# Which images were staged: tags may have been changed since.
PUSHED = ".ftbuild/*/*/pushed.json"
BUILD_LOG = ".ftbuild/*/*/build.log"
SMOKE_RECORD = ".ftbuild/*/*/smoke.json"
SMOKE_JUNIT = ".ftbuild/*/*/smoke.xml"

# On one host the work folder outlives a run, for the trends; this folder gets the report of the present one.
REPORT = "nightly-report"
BEGIN_NIGHTLY = f"rm -rf {REPORT} && mkdir -p .ftbuild/nights && touch .ftbuild/began"
COLLECT_REPORT = f"""\
made=$(find .ftbuild/nights -mindepth 1 -maxdepth 1 -newer .ftbuild/began | sort | tail -n 1)
if [ -n "$made" ]; then cp -r "$made" {REPORT}; fi
"""


def nightly(words: str, *, substitutes: bool) -> str:
    """Return the command for the whole matrix on this machine; `words` is the selection."""
    taking = ' --from "$REGISTRY"' if substitutes else ""
    return f'./bootstrap nightly --registry "$REGISTRY"{taking}{words}'


def summary(words: str) -> str:
    """Return the command that prints the gate records of the work folder as Markdown."""
    return f"./bootstrap dev.ci --summary{words}"

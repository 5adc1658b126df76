"""What the jobs run, the same lines in every CI system.

`TRITON`, `SMS` (`80` or `80,86`) and `BASE` are variables that mean the cell; `REGISTRY` and `STAGE` say
where images go. A line makes its machine ready by itself: `./bootstrap` installs what is missing, then runs
`invoke`.
"""

from __future__ import annotations

TEST = ".ci/run"
READY = "./bootstrap"
_CELL = '--triton "$TRITON" --sm "$SMS" --base "$BASE"'
_STAGED = '--registry "$REGISTRY" --stage "$STAGE"'

BUILD = f"./bootstrap build {_CELL}"
PUSH = f"./bootstrap registry.stage {_STAGED} {_CELL}"
PULL = f"./bootstrap registry.pull {_STAGED} {_CELL}"
# Ends with 4 where no GPU fits: nothing was tested, so the job fails and nothing is published.
SMOKE = f"./bootstrap smoke {_CELL}"
PUBLISH = f"./bootstrap publish {_STAGED} {_CELL}"
AUDIT = "./bootstrap audit"

# Variables hold user and password, so that neither stands in a process list or a log.
LOGIN = (
    'printf "%s" "$REGISTRY_PASSWORD"'
    ' | docker login "${REGISTRY%%/*}" --username "$REGISTRY_USER" --password-stdin'
)
LOGOUT = 'docker logout "${REGISTRY%%/*}"'

# Records and logs in the work folder: <cell>/<key>/FILE.
VERIFY_RECORD = ".ftbuild/*/*/verify.json"
# For the SBOM: where images are published, they are not at hand.
INVENTORIES = ".ftbuild/*/*/inventory-*.json"
BUILD_LOG = ".ftbuild/*/*/build.log"
SMOKE_RECORD = ".ftbuild/*/*/smoke.json"
SMOKE_JUNIT = ".ftbuild/*/*/smoke.xml"

# On one host the work folder outlives a night, for the trends; `night` gets the report of this one only.
NIGHT = "night"
BEGIN_NIGHT = f"rm -rf {NIGHT} && mkdir -p .ftbuild/nights && touch .ftbuild/began"
COLLECT_NIGHT = f"""\
made=$(find .ftbuild/nights -mindepth 1 -maxdepth 1 -newer .ftbuild/began | sort | tail -n 1)
if [ -n "$made" ]; then cp -r "$made" {NIGHT}; fi
"""


def nightly(words: str) -> str:
    """The whole matrix on this machine; `words` are the selection."""
    return f'./bootstrap nightly --registry "$REGISTRY"{words}'


def summary(words: str) -> str:
    """Markdown of the gate records that lie in the work folder."""
    return f"./bootstrap dev.ci --summary{words}"

"""Options that several commands share, as data; `arguments` makes command-line options of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from ftbuild.cli.arguments import Range
from ftbuild.host.paths import named_folder

ROOT = Path(__file__).parents[2]


def setting(name: str) -> str | None:
    """Return an environment variable; an empty one counts as unset."""
    return os.environ.get(name) or None


def work_folder() -> Path:
    """Return FTBUILD_WORK, else `.ftbuild` in the checkout: staged contexts, logs and records.

    Errors as `named_folder`.
    """
    return named_folder("FTBUILD_WORK") or ROOT / ".ftbuild"


CONFIG = Path(setting("FTBUILD_CONFIG") or ROOT / "buildcfg")

Format = Annotated[Literal["human", "json"], "human or json"]
ConfigFolder = Annotated[Path, "folder of the configuration (default: buildcfg, or FTBUILD_CONFIG)"]
Releases = Annotated[Sequence[str], "Triton release, for instance 22.12 (repeatable)"]
# Each job opens a file for every slot (dockerfiles/steps/slot.py), and 1024 is a usual limit of open files.
MAX_JOBS = 1000
Jobs = Annotated[
    int | None,
    Range(1, MAX_JOBS),
    "compile jobs at a time (default: from the engine's cores and memory)",
]
CaBundle = Annotated[
    str | None, "CA bundle for downloads behind a TLS-inspecting proxy (default: SSL_CERT_FILE)"
]
Builder = Annotated[str | None, "buildx builder (default: the engine's own)"]
Progress = Annotated[
    Literal["auto", "tty", "plain"], "auto: a line a stage; tty or plain: BuildKit's own, as in the log"
]
Rebuild = Annotated[bool, "build even if the image is there"]
DryRun = Annotated[bool, "print the plan and stop: needs neither Docker nor network"]
PlanFile = Annotated[Path | None, "plan file of a nightly run, in place of the options that select cells"]
# With a plan file they would mean nothing.
SELECTING = ("triton", "sm", "cell", "base", "without", "head_sizes")
BaseNames = Annotated[
    Sequence[str], "base to build on, for instance ngc (repeatable; default: that of the release)"
]
BaseName = Annotated[str | None, "base to build on, for instance open (default: the first that has a front)"]

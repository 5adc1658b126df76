"""The main job on the sample stack, from lock to an answer: what `./bootstrap demo` shows on a bare machine.

It goes through the very code of the real stack, with another configuration folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ftbuild import build, commands, engine, server, shell
from ftbuild import config as configuration
from ftbuild.errors import SmokeError
from ftbuild.plan import Plan

TRITON = "22.12"
SM = "80"
REPOSITORIES = ".sample-upstream"


def run(root: Path, work: Path, *, ca: str | None, progress: str) -> int:
    """Sample repositories, lock check, build, server, request; SmokeError when the answer is wrong."""
    start = time.monotonic()
    folder = root / "buildcfg" / "sample"
    sample_repositories(root)
    config = configuration.load(folder)
    commands.lock(folder, check=True)
    selection = commands.Selection(folder, [TRITON], [SM])
    (plan,) = commands.plans(selection)
    options = build.Options(commands.cache_folder(), work, ca=commands.ca_bundle(ca), progress=progress)
    (outcome,) = build.build(config, [plan], options)
    if outcome.error:
        return outcome.exit_code
    _ask(plan, work / "demo")
    print(f"demo finished in {time.monotonic() - start:.0f} s")
    return 0


def sample_repositories(root: Path) -> None:
    """Make the miniature upstreams' git repositories; their commits are the same on every machine."""
    shell.run([sys.executable, str(root / "sample" / "make_repositories.py"), str(root / REPOSITORIES)])

"""A nightly run against the same cells built, tested and published one after the other.

    python -m benchmarks.tools.nightly --rounds 3

Both sides run ftbuild's commands on a copy of the sample stack, with a registry on loopback. Before each
measurement the sources get a new patch, so that no layer and no object of FasterTransformer comes from a
cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.harness.workspace import timed
from ftbuild import matrix
from ftbuild.cli import demo
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.host.shell import CommandFailed
from ftbuild.sm import sm_list
from ftbuild.text import tables
from testing import ROOT, registries
from testing.nightly import IMAGE, copied, new_to_every_cache, patch, repatch
from testing.sample import command, environment

CELLS = ("22.07-sm80", "22.12-sm80", "22.12-sm86")
PATCH = "9000-new-to-every-cache.patch"


@dataclass(frozen=True)
class Workspace:
    """The workspace of both sides: configuration, work folder, registry, cells and compile jobs."""

    config: Path
    work: Path
    registry: str
    variables: Mapping[str, str]
    cells: tuple[matrix.Cell, ...]
    jobs: int

    def invoke(self, *arguments: str) -> None:
        """Run a command; CommandFailed unless it succeeds."""
        argv = command(*arguments, "--config", str(self.config))
        timed(argv, env=environment(self.work, **self.variables))

    def renew(self) -> None:
        """Make the sources new to all caches, the same for all cells of a release."""
        repatch(self.config, PATCH, new_to_every_cache())


# Seconds of both sides by name, measured right after each other.
Round = Mapping[str, float]
Side = Callable[[Workspace, str], None]


def nightly_run(workspace: Workspace, registry: str) -> None:
    """Run all cells in one nightly run with one budget."""
    chosen = [word for cell in workspace.cells for word in ("--cell", cell.id)]
    workspace.invoke("nightly", *chosen, "--jobs", str(workspace.jobs), "--no-audit", "--registry", registry)


def one_by_one(workspace: Workspace, registry: str) -> None:
    """Build, test and publish the same cells, one after the other."""
    for cell in workspace.cells:
        chosen = ["--triton", cell.triton, "--sm", sm_list(cell.sms), "--base", cell.base]
        workspace.invoke("build", *chosen, "--jobs", str(workspace.jobs), "--progress", "plain")
        workspace.invoke("smoke", *chosen)
        workspace.invoke("publish", *chosen, "--registry", registry)


def measure(workspace: Workspace, rounds: int, sides: Sequence[Side]) -> list[Round]:
    """Measure all sides in turn; the order alternates."""
    found: list[Round] = []
    for number in range(rounds):
        seconds: dict[str, float] = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            workspace.renew()
            start = time.monotonic()
            side(workspace, f"{workspace.registry}/{side.__name__}-{number}".replace("_", "-"))
            seconds[side.__name__] = time.monotonic() - start
            print(f"round {number + 1}: {side.__name__} {seconds[side.__name__]:.1f} s", file=sys.stderr)
        found.append(seconds)
    return found


def ratios(rounds: Sequence[Round], new: Side, old: Side) -> list[float]:
    """Return the time of one side relative to the other in each round."""
    return [r[new.__name__] / r[old.__name__] for r in rounds]


def summary(rounds: Sequence[Round], new: Side, old: Side) -> str:
    """Return a table of rounds, medians, and the smallest and largest ratio."""
    found = ratios(rounds, new, old)
    rows = [
        (str(number), f"{r[old.__name__]:.1f} s", f"{r[new.__name__]:.1f} s", f"{ratio:.2f}")
        for number, (r, ratio) in enumerate(zip(rounds, found, strict=True), 1)
    ]
    middle = {side: statistics.median(r[side.__name__] for r in rounds) for side in (old, new)}
    spread = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
    rows.append(("median", f"{middle[old]:.1f} s", f"{middle[new]:.1f} s", spread))
    names = [side.__name__.replace("_", " ") for side in (old, new)]
    return tables.render(("Round", *names, f"{names[1]} / {names[0]}"), rows)


def record(workspace: Workspace, rounds: Sequence[Round], new: Side, old: Side) -> str:
    """Return everything about the measurement as JSON."""
    content = {
        "cells": [cell.id for cell in workspace.cells],
        "jobs": workspace.jobs,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "rounds": rounds,
        "median_ratio": statistics.median(ratios(rounds, new, old)),
    }
    return json.dumps(content, indent=2)


@contextmanager
def prepared(cells: Sequence[str], jobs: int | None) -> Iterator[Workspace]:
    """Yield a workspace whose registry is empty; remove everything at the end."""
    client = daemon.connect()
    demo.sample_repositories(ROOT)
    folder = Path(tempfile.mkdtemp(prefix="ftbuild-benchmark-"))
    try:
        with registries.plain(folder / "registry") as registry:
            config = copied(folder)
            patch(config, ">=5.2", PATCH, new_to_every_cache())
            table = matrix.select(loader.load(config), cells=cells)
            count = jobs or int(client.info()["NCPU"])
            yield Workspace(config, folder / "work", registry.host, registry.environment, table, count)
    finally:
        shutil.rmtree(folder)
        for image in client.images.list(name=IMAGE):
            for tag in image.tags:
                client.images.remove(tag, force=True)


def options(about: str | None, cells: Sequence[str]) -> argparse.Namespace:
    """Return the options of a benchmark of nights."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=cells, help="cells of the sample stack, 22.07 or later")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--jobs", type=int, help="compile jobs, the same for both sides (default: cores)")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table and JSON."""
    chosen = options(__doc__, CELLS)
    try:
        with prepared(chosen.cells, chosen.jobs) as workspace:
            nightly_run(workspace, f"{workspace.registry}/warm-up")  # pushes the base's layers
            rounds = measure(workspace, chosen.rounds, (nightly_run, one_by_one))
    except CommandFailed as failed:
        sys.exit(str(failed))
    except pytest.skip.Exception as missing:  # the registry is not installed
        sys.exit(str(missing))
    print(summary(rounds, nightly_run, one_by_one))
    print(record(workspace, rounds, nightly_run, one_by_one))


if __name__ == "__main__":
    main()

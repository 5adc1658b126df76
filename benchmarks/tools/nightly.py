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
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Round:
    """Seconds of both sides, measured right after each other."""

    nightly_run: float
    one_by_one: float

    @property
    def ratio(self) -> float:
        """Return the time of the nightly run relative to the other side."""
        return self.nightly_run / self.one_by_one


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


def measure(workspace: Workspace, rounds: int) -> list[Round]:
    """Measure both sides in turn; the order alternates."""
    found = []
    for number in range(rounds):
        seconds: dict[str, float] = {}
        sides: list[Callable[[Workspace, str], None]] = [nightly_run, one_by_one]
        for side in sides if number % 2 == 0 else reversed(sides):
            workspace.renew()
            start = time.monotonic()
            side(workspace, f"{workspace.registry}/{side.__name__}-{number}".replace("_", "-"))
            seconds[side.__name__] = time.monotonic() - start
            print(f"round {number + 1}: {side.__name__} {seconds[side.__name__]:.1f} s", file=sys.stderr)
        found.append(Round(**seconds))
    return found


def summary(rounds: Sequence[Round]) -> str:
    """Return a table of rounds, medians, and the smallest and largest ratio."""
    rows = [
        (str(number), f"{r.one_by_one:.1f} s", f"{r.nightly_run:.1f} s", f"{r.ratio:.2f}")
        for number, r in enumerate(rounds, 1)
    ]
    median = medians(rounds)
    ratios = [r.ratio for r in rounds]
    rows.append(
        (
            "median",
            f"{median['one_by_one']:.1f} s",
            f"{median['nightly_run']:.1f} s",
            f"{median['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )
    )
    return tables.render(("Round", "One by one", "Nightly run", "Nightly run / one by one"), rows)


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the medians of both sides and of the ratios."""
    return {
        name: statistics.median(getattr(r, name) for r in rounds)
        for name in ("nightly_run", "one_by_one", "ratio")
    }


@contextmanager
def prepared(cells: Sequence[str], jobs: int | None) -> Iterator[Workspace]:
    """Yield a workspace whose registry has the layers of the base; remove everything at the end."""
    client = daemon.connect()
    demo.sample_repositories(ROOT)
    folder = Path(tempfile.mkdtemp(prefix="ftbuild-benchmark-"))
    try:
        with registries.plain(folder / "registry") as registry:
            config = copied(folder)
            patch(config, ">=5.2", PATCH, new_to_every_cache())
            table = matrix.select(loader.load(config), cells=cells)
            count = jobs or int(client.info()["NCPU"])
            workspace = Workspace(config, folder / "work", registry.host, registry.environment, table, count)
            nightly_run(workspace, f"{registry.host}/warm-up")
            yield workspace
    finally:
        shutil.rmtree(folder)
        for image in client.images.list(name=IMAGE):
            for tag in image.tags:
                client.images.remove(tag, force=True)


def main() -> None:
    """Measure, and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=CELLS, help="cells of the sample stack, 22.07 or later")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--jobs", type=int, help="compile jobs, the same for both sides (default: cores)")
    options = parser.parse_args()
    try:
        with prepared(options.cells, options.jobs) as workspace:
            rounds = measure(workspace, options.rounds)
    except CommandFailed as failed:
        sys.exit(str(failed))
    except pytest.skip.Exception as missing:  # the registry is not installed
        sys.exit(str(missing))
    record = {
        "cells": [cell.id for cell in workspace.cells],
        "jobs": workspace.jobs,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "rounds": [asdict(r) for r in rounds],
        "median": medians(rounds),
    }
    print(summary(rounds))
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()

"""A nightly run against the same cells built, tested and published one after the other.

    python -m benchmarks.tools.nightly --rounds 3
    python -m benchmarks.tools.nightly --real --rounds 1     # empties the engine's build cache

Both sides run ftbuild's commands on a copy of the sample stack, with a registry on loopback. Before each
measurement the sources get a new patch, so that no layer and no object of FasterTransformer comes from a
cache. Of the real stack, the cells are built and verified only, each side from an empty build cache; base
images, sources and Python packages are there before.
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

from benchmarks.harness.counts import at_least_one
from benchmarks.harness.workspace import timed
from ftbuild import matrix
from ftbuild.cli import demo
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.errors import FtbuildError, Interrupted
from ftbuild.host import shell
from ftbuild.sm import sm_list
from ftbuild.text import tables
from ftbuild.text.reporter import to_stderr
from testing import ROOT, built_images, registries
from testing.nightly import copied, new_to_every_cache, patch, repatch
from testing.sample import command, copy_of_real, environment

CELLS = ("22.07-sm80", "22.12-sm80", "22.12-sm86")
# Each of them has been built and verified before (buildcfg/bases.yaml), so none fails here.
REAL_CELLS = (
    "22.12-sm90-open",
    "22.07-sm90-open",
    "22.03-sm90-open",
    "22.03-sm86-open",
    "22.03-sm80-open",
    "22.03-sm75-open",
)
REAL_BASE = "open"
IMAGE = "triton_with_ft_sample_benchmark"
# The user's own images of the same cells stay as they are.
REAL_IMAGE = "triton_with_ft_benchmark"
PATCH = "9000-new-to-every-cache.patch"


@dataclass(frozen=True)
class Workspace:
    """The workspace of both sides: configuration, work folder, cells and compile jobs.

    Without a registry cells are built and verified only. `renew` makes all that is measured new to every
    cache.
    """

    config: Path
    work: Path
    registry: str
    variables: Mapping[str, str]
    cells: tuple[matrix.Cell, ...]
    jobs: int
    renew: Callable[[], None]

    def invoke(self, *arguments: str) -> None:
        """Run a command, and say how long it took; CommandFailed unless it succeeds."""
        argv = command(*arguments, "--config", str(self.config))
        used = timed(argv, env=environment(self.work, **self.variables))
        to_stderr(f"{used.wall:.1f} s: invoke {shell.display(arguments)}")

    def repository(self, name: str) -> str:
        """Return a part of the registry, empty without one."""
        return f"{self.registry}/{name}" if self.registry else ""


# Seconds of both sides by name, measured right after each other.
Round = Mapping[str, float]
Side = Callable[[Workspace, str], None]


def nightly_run(workspace: Workspace, repository: str) -> None:
    """Run all cells in one nightly run with one budget."""
    bases = dict.fromkeys(cell.base for cell in workspace.cells)
    chosen = [word for cell in workspace.cells for word in ("--cell", cell.id)]
    chosen += [word for base in bases for word in ("--base", base)]
    until = ["--registry", repository] if repository else ["--no-smoke"]
    workspace.invoke("nightly", *chosen, "--jobs", str(workspace.jobs), "--no-audit", *until)


def one_by_one(workspace: Workspace, repository: str) -> None:
    """Build, test and publish the same cells, one after the other."""
    for cell in workspace.cells:
        chosen = ["--triton", cell.triton, "--sm", sm_list(cell.sms), "--base", cell.base]
        workspace.invoke("build", *chosen, "--jobs", str(workspace.jobs), "--progress", "plain")
        if repository:
            workspace.invoke("smoke", *chosen)
            workspace.invoke("publish", *chosen, "--registry", repository)


def measure(workspace: Workspace, rounds: int, sides: Sequence[Side]) -> list[Round]:
    """Measure all sides in turn; the order alternates."""
    measured_rounds: list[Round] = []
    for number in range(rounds):
        seconds: dict[str, float] = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            workspace.renew()
            start = time.monotonic()
            side(workspace, workspace.repository(f"{side.__name__}-{number}".replace("_", "-")))
            seconds[side.__name__] = time.monotonic() - start
            to_stderr(f"round {number + 1}: {side.__name__} {seconds[side.__name__]:.1f} s")
        measured_rounds.append(seconds)
    return measured_rounds


def ratios(rounds: Sequence[Round], new: Side, old: Side) -> list[float]:
    """Return the time of one side relative to the other in each round."""
    return [r[new.__name__] / r[old.__name__] for r in rounds]


def summary(rounds: Sequence[Round], new: Side, old: Side) -> str:
    """Return a table of rounds, medians, and the smallest and largest ratio."""
    factors = ratios(rounds, new, old)
    rows = [
        (str(number), f"{r[old.__name__]:.1f} s", f"{r[new.__name__]:.1f} s", f"{ratio:.2f}")
        for number, (r, ratio) in enumerate(zip(rounds, factors, strict=True), 1)
    ]
    middle = {side: statistics.median(r[side.__name__] for r in rounds) for side in (old, new)}
    spread = f"{statistics.median(factors):.2f} ({min(factors):.2f} to {max(factors):.2f})"
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
            config = copied(folder, IMAGE)
            patch(config, ">=5.2", PATCH, new_to_every_cache())
            table = matrix.select(loader.load(config), cells=cells)
            count = jobs or int(client.info()["NCPU"])

            def renew() -> None:
                """Make the sources new to all caches, the same for all cells of a release."""
                repatch(config, PATCH, new_to_every_cache())

            yield Workspace(config, folder / "work", registry.host, registry.environment, table, count, renew)
    finally:
        shutil.rmtree(folder)
        built_images.remove(client, IMAGE)


@contextmanager
def prepared_real(cells: Sequence[str], jobs: int | None, work: Path | None) -> Iterator[Workspace]:
    """Yield a workspace of the real sources; all goes at the end but a work folder that is given."""
    client = daemon.connect()
    with tempfile.TemporaryDirectory(prefix="ftbuild-benchmark-") as folder:
        config = copy_of_real(Path(folder), REAL_IMAGE)
        table = matrix.select(loader.load(config), cells=cells, bases=[REAL_BASE])
        count = jobs or int(client.info()["NCPU"])

        def renew() -> None:
            """Remove what the other side has built: images, and the engine's whole build cache."""
            built_images.remove(client, REAL_IMAGE)
            shell.run(["docker", "buildx", "prune", "--all", "--force"])

        try:
            yield Workspace(config, work or Path(folder) / "work", "", {}, table, count, renew)
        finally:
            built_images.remove(client, REAL_IMAGE)


@contextmanager
def without_traceback() -> Iterator[None]:
    """End the program with a sentence when a command fails, something is not installed, or on Ctrl-C."""
    try:
        yield
    except (FtbuildError, pytest.skip.Exception) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        to_stderr("interrupted: only the commands that ended were measured")
        sys.exit(Interrupted.exit_code)


def options(about: str | None, cells: Sequence[str]) -> argparse.ArgumentParser:
    """Return the options of a benchmark of nights."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--cells", nargs="+", help=f"default: {' '.join(cells)}; of the sample stack from 22.07 on"
    )
    parser.add_argument("--rounds", type=at_least_one, default=3, help="measurements of each side")
    parser.add_argument("--jobs", type=at_least_one, help="compile jobs of both sides (default: cores)")
    return parser


def main() -> None:
    """Measure, and print a table and JSON."""
    parser = options(__doc__, CELLS)
    parser.add_argument(
        "--real", action="store_true", help=f"cells of the real stack (default: {' '.join(REAL_CELLS)})"
    )
    parser.add_argument("--work", type=Path, help="with --real: a work folder, which is kept")
    chosen = parser.parse_args()
    if chosen.work and not chosen.real:
        parser.error("--work: only with --real")
    stack = (
        prepared_real(chosen.cells or REAL_CELLS, chosen.jobs, chosen.work)
        if chosen.real
        else prepared(chosen.cells or CELLS, chosen.jobs)
    )
    with without_traceback(), stack as workspace:
        if workspace.registry:
            nightly_run(workspace, workspace.repository("warm-up"))  # pushes the base's layers
        rounds = measure(workspace, chosen.rounds, (nightly_run, one_by_one))
    print(summary(rounds, nightly_run, one_by_one))
    print(record(workspace, rounds, nightly_run, one_by_one))


if __name__ == "__main__":
    main()

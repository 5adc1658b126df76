"""How long a night takes beside the same cells built, tested and published one after the other.

    python -m benchmarks.tools.nightly --rounds 3

Both sides run the commands that a person would type, on a copy of the sample stack, into a registry on
loopback. Before each measurement the sources get a patch of their own, so that no layer and no object of
FasterTransformer comes from a cache.
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

from benchmarks.harness.stage import timed
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
class Stage:
    """Where both sides work: a configuration, a work folder, a registry, and how much of the machine."""

    config: Path
    work: Path
    registry: str
    variables: Mapping[str, str]
    cells: tuple[matrix.Cell, ...]
    jobs: int

    def invoke(self, *arguments: str) -> None:
        """One command; CommandFailed unless it ends well."""
        argv = command(*arguments, "--config", str(self.config))
        timed(argv, env=environment(self.work, **self.variables))

    def renew(self) -> None:
        """Sources that nobody has compiled yet, the same for all cells of a release."""
        repatch(self.config, PATCH, new_to_every_cache())


@dataclass(frozen=True)
class Round:
    """Seconds of both sides, measured right after each other."""

    night: float
    one_by_one: float

    @property
    def ratio(self) -> float:
        """The part of the time that the night needs."""
        return self.night / self.one_by_one


def night(stage: Stage, registry: str) -> None:
    """All cells in one night with one budget."""
    chosen = [word for cell in stage.cells for word in ("--cell", cell.id)]
    stage.invoke("nightly", *chosen, "--jobs", str(stage.jobs), "--no-audit", "--registry", registry)


def one_by_one(stage: Stage, registry: str) -> None:
    """The same cells, each built, tested and published before the next."""
    for cell in stage.cells:
        chosen = ["--triton", cell.triton, "--sm", sm_list(cell.sms), "--base", cell.base]
        stage.invoke("build", *chosen, "--jobs", str(stage.jobs), "--progress", "plain")
        stage.invoke("smoke", *chosen)
        stage.invoke("publish", *chosen, "--registry", registry)


def measure(stage: Stage, rounds: int) -> list[Round]:
    """Both sides in turn; which one begins changes from round to round."""
    found = []
    for number in range(rounds):
        seconds: dict[str, float] = {}
        sides: list[Callable[[Stage, str], None]] = [night, one_by_one]
        for side in sides if number % 2 == 0 else reversed(sides):
            stage.renew()
            start = time.monotonic()
            side(stage, f"{stage.registry}/{side.__name__}-{number}".replace("_", "-"))
            seconds[side.__name__] = time.monotonic() - start
            print(f"round {number + 1}: {side.__name__} {seconds[side.__name__]:.1f} s", file=sys.stderr)
        found.append(Round(**seconds))
    return found


def summary(rounds: Sequence[Round]) -> str:
    """A row for each round, then medians with the smallest and the largest ratio."""
    rows = [
        (str(number), f"{r.one_by_one:.1f} s", f"{r.night:.1f} s", f"{r.ratio:.2f}")
        for number, r in enumerate(rounds, 1)
    ]
    median = medians(rounds)
    ratios = [r.ratio for r in rounds]
    rows.append(
        (
            "median",
            f"{median['one_by_one']:.1f} s",
            f"{median['night']:.1f} s",
            f"{median['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )
    )
    return tables.render(("Round", "One by one", "NightlyRun", "NightlyRun / one by one"), rows)


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Of both sides and of the rounds' ratios."""
    return {
        name: statistics.median(getattr(r, name) for r in rounds) for name in ("night", "one_by_one", "ratio")
    }


@contextmanager
def staged(cells: Sequence[str], jobs: int | None) -> Iterator[Stage]:
    """A stage with a registry that has the layers of the base; all that it made is removed at the end."""
    client = daemon.connect()
    demo.sample_repositories(ROOT)
    folder = Path(tempfile.mkdtemp(prefix="ftbuild-benchmark-"))
    try:
        with registries.plain(folder / "registry") as registry:
            config = copied(folder)
            patch(config, ">=5.2", PATCH, new_to_every_cache())
            table = matrix.select(loader.load(config), cells=cells)
            count = jobs or int(client.info()["NCPU"])
            stage = Stage(config, folder / "work", registry.host, registry.environment, table, count)
            night(stage, f"{registry.host}/warm-up")
            yield stage
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
        with staged(options.cells, options.jobs) as stage:
            rounds = measure(stage, options.rounds)
    except CommandFailed as failed:
        sys.exit(str(failed))
    except pytest.skip.Exception as missing:  # the tests' registry says so where it is not installed
        sys.exit(str(missing))
    record = {
        "cells": [cell.id for cell in stage.cells],
        "jobs": stage.jobs,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "rounds": [asdict(r) for r in rounds],
        "median": medians(rounds),
    }
    print(summary(rounds))
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()

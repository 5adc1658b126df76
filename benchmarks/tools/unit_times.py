"""Measured times of a cell's compile units, stored beside the results for replays.

    python -m benchmarks.tools.unit_times --cell 22.12-sm90-open --jobs 16

Compiles the backend tree of the cell from empty caches, as the benchmark `wall` does, and stores start, end
and CPU seconds of each unit, without the time that it waited for a slot, in the order of ninja's build
statements.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath

from benchmarks.harness import compiles
from benchmarks.harness.counts import at_least_one
from benchmarks.harness.figure import Machine
from benchmarks.harness.run import BenchOptions
from benchmarks.harness.workspace import REAL_CELL, Workspace
from ftbuild.config.recipe import STEPS
from ftbuild.errors import FtbuildError
from ftbuild.host.files import write_atomic
from ftbuild.nightly import ninja
from ftbuild.nightly.record import Unit
from testing import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "units"
_SUFFIX = ".tsv"
_ABOUT, _CELL, _JOBS, _KEY = "# ", "# cell: ", "# jobs: ", "# key: "
_STATEMENT = re.compile(r"^build (.+?): ", re.M)
COMPILE = ROOT / "dockerfiles" / STEPS / "compile.sh"
# The program that puts the slowest sources first; the statements are kept as they were before.
_REORDER = "/steps/heaviest.py "
_STATEMENTS = "statements.ninja"


@dataclass(frozen=True)
class Timed(Unit):
    """A unit with its CPU seconds; None for a link, and for a compiler that took no slot."""

    cpu: float | None = None


Trees = Mapping[str, Sequence[Timed]]


@dataclass(frozen=True)
class Times:
    """A measured compile: where and when, the units of each tree in ninja's order, jobs, cell and its key."""

    about: str
    trees: Trees
    jobs: int
    cell: str
    key: str

    @property
    def name(self) -> str:
        """Return the name under which the times are stored."""
        return f"{self.cell}-{self.jobs}-jobs"

    @property
    def wall(self) -> float:
        """Return the seconds from the start of the trees, which is one, to the end of the last unit."""
        return max(unit.end for units in self.trees.values() for unit in units)

    @property
    def compilers(self) -> list[float]:
        """Return the CPU seconds of the compilers."""
        return [unit.cpu for units in self.trees.values() for unit in units if unit.cpu is not None]


def stored() -> list[Times]:
    """Return all stored times, by cell and jobs."""
    return sorted(map(read, FOLDER.glob(f"*{_SUFFIX}")), key=lambda times: (times.cell, times.jobs))


def read(file: Path) -> Times:
    """Return stored times."""
    lines = file.read_text(encoding="utf-8").splitlines()
    about, cell, jobs, key = lines[:4]
    trees: dict[str, list[Timed]] = {}
    for line in lines[4:]:
        tree, start, end, output, *cpu = line.split("\t")
        seconds = float(cpu[0]) if cpu else None
        trees.setdefault(tree, []).append(Timed(float(start), float(end), output, seconds))
    return Times(
        about.removeprefix(_ABOUT),
        trees,
        int(jobs.removeprefix(_JOBS)),
        cell.removeprefix(_CELL),
        key.removeprefix(_KEY),
    )


def write(times: Times) -> Path:
    """Write lines about the measurement, then one per unit: tree, start, end, output, known CPU seconds."""
    notes = [f"{_ABOUT}{times.about}", f"{_CELL}{times.cell}", f"{_JOBS}{times.jobs}", f"{_KEY}{times.key}"]
    lines = [_line(tree, unit) for tree, units in times.trees.items() for unit in units]
    file = FOLDER / (times.name + _SUFFIX)
    write_atomic(file, "\n".join([*notes, *lines, ""]))
    return file


def _line(tree: str, unit: Timed) -> str:
    cpu = [] if unit.cpu is None else [f"{unit.cpu:.2f}"]
    return "\t".join([tree, f"{unit.start:.3f}", f"{unit.end:.3f}", unit.output, *cpu])


def measured(workspace: Workspace) -> Times:
    """Compile the workspace's cell from empty caches; BuildError with the reason if it fails."""
    plan = workspace.plan()
    compiled = compiles.Machine(workspace).compile(plan, script=keeping_statements(COMPILE.read_text()))
    trees = {tree.name: _units(tree) for tree in sorted(compiled.figures.iterdir())}
    machine, today = Machine.here(), datetime.now(UTC).date().isoformat()
    about = f"tree {', '.join(trees)}, {machine.cores} cores ({machine.processor}), {today}"
    return Times(about, trees, workspace.jobs, plan.cell.id, plan.key)


def keeping_statements(script: str) -> str:
    """Return the script of a compile that also keeps build.ninja as CMake has written it."""
    return script.replace(_REORDER, f'cp "$build/build.ninja" "$info/{_STATEMENTS}"\n{_REORDER}')


def _units(tree: Path) -> list[Timed]:
    ran = without_waiting(ninja.units((tree / "ninja_log").read_text()), (tree / "slots.tsv").read_text())
    return in_order(ran, (tree / _STATEMENTS).read_text())


def without_waiting(units: Iterable[Unit], slots: str) -> list[Timed]:
    """Return the units without the time that they waited for a slot, which ninja's log includes."""
    ran = {job.output: job for job in compiles.jobs(slots)}
    return [_ran(unit, ran.get(unit.output)) for unit in units]


def _ran(unit: Unit, job: compiles.Job | None) -> Timed:
    if job is None:
        return Timed(unit.start, unit.end, unit.output)
    return Timed(round(unit.end - job.seconds, 3), unit.end, unit.output, job.cpu)


def in_order(units: Sequence[Timed], statements: str) -> list[Timed]:
    """Return the units in the order of the statements of a build.ninja.

    A unit without a statement gets the place of the first one in its folder, that of its target.
    """
    places: dict[str, int] = {}
    for place, match in enumerate(_STATEMENT.finditer(statements)):
        for output in match[1].split():
            places.setdefault(output, place)
            places.setdefault(str(PurePath(output).parent), place)

    def key(unit: Timed) -> tuple[int, float]:
        folder = places.get(str(PurePath(unit.output).parent), len(places))
        return places.get(unit.output, folder), unit.start

    return sorted(units, key=key)


def main() -> int:
    """Compile, and store the times; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cell", default=REAL_CELL, help=f"default: {REAL_CELL}")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="compile jobs at a time (default: 2)")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="ftbuild-bench-") as work, ExitStack() as at_end:
            bench_options = BenchOptions(real=True, cell=[options.cell], jobs=options.jobs)
            print(write(measured(bench_options.workspace(Path(work), at_end))))
    except FtbuildError as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

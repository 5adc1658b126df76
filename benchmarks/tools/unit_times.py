"""Measured times of a cell's compile units, stored beside the results for replays.

    python -m benchmarks.tools.unit_times NAME backend=LOG pyt=LOG --about 'measured on ...' --jobs 4 \\
        --key KEY --slots backend=SLOTS.TSV pyt=SLOTS.TSV --statements backend=BUILD.NINJA pyt=BUILD.NINJA
    python -m benchmarks.tools.unit_times NAME --jobs 2 --seconds cold-real.json     # adds to what is stored

LOG is the .ninja_log of a cold build; slots.tsv has the times of compiles that waited for a slot, and their
CPU seconds. NAME is the cell, with a suffix if the sources are not those of the checkout:
`22.12-sm90-open-unsplit`. The statements give ninja's own order; without them it is the order in which units
started. The second form adds the CPU seconds that the record of the benchmark `cold` holds of that compile.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from benchmarks.harness import compiles
from benchmarks.harness.figure import Result
from ftbuild.errors import ConfigError
from ftbuild.host.files import write_atomic
from ftbuild.nightly import ninja
from ftbuild.nightly.record import Unit
from testing import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "units"
ROUNDING_SECONDS = 0.02
_SUFFIX = ".tsv"
_ABOUT, _JOBS, _KEY = "# ", "# jobs: ", "# key: "
_STATEMENT = re.compile(r"^build (.+?): ", re.M)


@dataclass(frozen=True)
class Timed(Unit):
    """A unit with its CPU seconds; None for a link, and for a compiler that took no slot."""

    cpu: float | None = None


Trees = Mapping[str, Sequence[Timed]]


@dataclass(frozen=True)
class Times:
    """A measured compile: where and how, the units of each tree in ninja's order, jobs, the cell's key.

    `jobs` is None and `key` empty if they were not recorded.
    """

    about: str
    trees: Trees
    jobs: int | None = None
    key: str = ""

    @property
    def wall(self) -> float:
        """Return the seconds from the start of the trees, which is one, to the end of the last unit."""
        return max(unit.end for units in self.trees.values() for unit in units)

    @property
    def compilers(self) -> list[float]:
        """Return the CPU seconds of the compilers."""
        return [unit.cpu for units in self.trees.values() for unit in units if unit.cpu is not None]


def names() -> list[str]:
    """Return the names of all stored times."""
    return sorted(file.name.removesuffix(_SUFFIX) for file in FOLDER.glob(f"*{_SUFFIX}"))


def read(name: str) -> Times:
    """Return stored times."""
    lines = (FOLDER / (name + _SUFFIX)).read_text(encoding="utf-8").splitlines()
    notes = [line for line in lines if line.startswith(_ABOUT)]
    jobs, key = (next((n.removeprefix(k) for n in notes if n.startswith(k)), "") for k in (_JOBS, _KEY))
    trees: dict[str, list[Timed]] = {}
    for line in lines[len(notes) :]:
        tree, start, end, output, *cpu = line.split("\t")
        seconds = float(cpu[0]) if cpu else None
        trees.setdefault(tree, []).append(Timed(float(start), float(end), output, seconds))
    return Times(notes[0].removeprefix(_ABOUT), trees, int(jobs) if jobs else None, key)


def write(name: str, times: Times) -> Path:
    """Write lines about the measurement, then one per unit: tree, start, end, output, known CPU seconds."""
    notes = [f"{_ABOUT}{times.about}"]
    notes += [f"{_JOBS}{times.jobs}"] if times.jobs else []
    notes += [f"{_KEY}{times.key}"] if times.key else []
    lines = [_line(tree, unit) for tree, units in times.trees.items() for unit in units]
    write_atomic(FOLDER / (name + _SUFFIX), "\n".join([*notes, *lines, ""]))
    return FOLDER / (name + _SUFFIX)


def _line(tree: str, unit: Timed) -> str:
    cpu = [] if unit.cpu is None else [f"{unit.cpu:.2f}"]
    return "\t".join([tree, f"{unit.start:.3f}", f"{unit.end:.3f}", unit.output, *cpu])


def with_seconds(trees: Trees, seconds: Mapping[str, float]) -> Trees:
    """Return the units with the CPU seconds of each output; ConfigError if they are of another compile."""
    lasted = {unit.output: unit.end - unit.start for units in trees.values() for unit in units}
    # A compiler has one thread, and both clocks are rounded.
    foreign = (output for output, cpu in seconds.items() if cpu > lasted.get(output, 0.0) + ROUNDING_SECONDS)
    if output := next(foreign, ""):
        raise ConfigError(f"the seconds are of another compile: {output} did not take so long there")
    return {
        tree: [replace(unit, cpu=seconds.get(unit.output, unit.cpu)) for unit in units]
        for tree, units in trees.items()
    }


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
    for place, found in enumerate(_STATEMENT.finditer(statements)):
        for output in found[1].split():
            places.setdefault(output, place)
            places.setdefault(str(PurePath(output).parent), place)

    def key(unit: Timed) -> tuple[int, float]:
        folder = places.get(str(PurePath(unit.output).parent), len(places))
        return places.get(unit.output, folder), unit.start

    return sorted(units, key=key)


def main() -> None:
    """Store the times from logs, or add to those that are stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("logs", nargs="*", metavar="TREE=LOG")
    parser.add_argument("--about", help="jobs, machine, date")
    parser.add_argument("--jobs", type=int, help="compile jobs at a time")
    parser.add_argument("--key", help="input key of the cell")
    parser.add_argument("--slots", nargs="*", default=[], metavar="TREE=SLOTS.TSV")
    parser.add_argument("--statements", nargs="*", default=[], metavar="TREE=BUILD.NINJA")
    parser.add_argument("--seconds", type=Path, metavar="RECORD", help="of the benchmark cold, same compile")
    options = parser.parse_args()
    old = None if options.logs else read(options.name)
    trees: dict[str, Sequence[Timed]] = dict(old.trees) if old else {}
    slots = _texts(options.slots)
    for tree, text in _texts(options.logs).items():
        trees[tree] = without_waiting(ninja.units(text), slots.get(tree, ""))
    for tree, text in _texts(options.statements).items():
        trees[tree] = in_order(trees[tree], text)
    found = Times(options.about or "", trees, options.jobs, options.key or "")
    if old:
        found = Times(options.about or old.about, trees, options.jobs or old.jobs, options.key or old.key)
    if options.seconds:
        found = replace(found, trees=with_seconds(found.trees, Result.read(options.seconds).data["ours"]))
    if not found.about:
        parser.error("--about: where and how it was measured")
    print(write(options.name, found))


def _texts(files: Sequence[str]) -> dict[str, str]:
    """Return the text by tree for arguments of the form TREE=FILE."""
    return {tree: Path(file).read_text(encoding="utf-8") for tree, file in (f.split("=", 1) for f in files)}


if __name__ == "__main__":
    main()

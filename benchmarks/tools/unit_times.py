"""Measured times of a cell's compile units, stored beside the results for replays.

    python -m benchmarks.tools.unit_times NAME backend=LOG pyt=LOG --about 'measured with 4 jobs, on ...' \\
        --slots backend=SLOTS.TSV pyt=SLOTS.TSV --statements backend=BUILD.NINJA pyt=BUILD.NINJA

LOG is the .ninja_log of a cold build; slots.tsv has the times of compiles that waited for a slot. NAME is the
cell, with a suffix if the sources are not those of the checkout: `22.12-sm90-open-unsplit`. The statements
give ninja's own order; without them it is the order in which units started.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from ftbuild.host.files import write_atomic
from ftbuild.nightly import ninja
from ftbuild.nightly.record import Unit
from testing import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "units"
_SUFFIX = ".tsv"
_ABOUT = "# "
_STATEMENT = re.compile(r"^build (.+?): ", re.M)

Trees = Mapping[str, Sequence[Unit]]


def names() -> list[str]:
    """Return the names of all stored times."""
    return sorted(file.name.removesuffix(_SUFFIX) for file in FOLDER.glob(f"*{_SUFFIX}"))


def about(name: str) -> str:
    """Return where and how they were measured."""
    return _lines(name)[0].removeprefix(_ABOUT)


def read(name: str) -> Trees:
    """Return the units of each tree, in ninja's order."""
    trees: dict[str, list[Unit]] = {}
    for line in _lines(name)[1:]:
        tree, start, end, output = line.split("\t")
        trees.setdefault(tree, []).append(Unit(float(start), float(end), output))
    return trees


def write(name: str, about: str, trees: Trees) -> Path:
    """Write a line about the measurement, then one per unit: tree, start and end in seconds, output."""
    lines = [
        f"{_ABOUT}{about}\n",
        *(
            f"{tree}\t{unit.start:.3f}\t{unit.end:.3f}\t{unit.output}\n"
            for tree, units in trees.items()
            for unit in units
        ),
    ]
    write_atomic(FOLDER / (name + _SUFFIX), "".join(lines))
    return FOLDER / (name + _SUFFIX)


def without_waiting(units: Sequence[Unit], slots: str) -> list[Unit]:
    """Return the units without the time that they waited for a slot, which ninja's log includes."""
    rows = (line.split("\t") for line in slots.splitlines())
    seconds = {output: (int(end) - int(start)) / 1000 for start, end, _, output, *_ in rows}
    return [replace(unit, start=unit.end - seconds.get(unit.output, unit.end - unit.start)) for unit in units]


def in_order(units: Sequence[Unit], statements: str) -> list[Unit]:
    """Return the units in the order of the statements of a build.ninja.

    A unit without a statement gets the place of the first one in its folder, that of its target.
    """
    places: dict[str, int] = {}
    for place, found in enumerate(_STATEMENT.finditer(statements)):
        for output in found[1].split():
            places.setdefault(output, place)
            places.setdefault(str(PurePath(output).parent), place)

    def key(unit: Unit) -> tuple[int, float]:
        folder = places.get(str(PurePath(unit.output).parent), len(places))
        return places.get(unit.output, folder), unit.start

    return sorted(units, key=key)


def _lines(name: str) -> list[str]:
    return (FOLDER / (name + _SUFFIX)).read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Store the times from logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("logs", nargs="+", metavar="TREE=LOG")
    parser.add_argument("--about", required=True, help="jobs, machine, date")
    parser.add_argument("--slots", nargs="*", default=[], metavar="TREE=SLOTS.TSV")
    parser.add_argument("--statements", nargs="*", default=[], metavar="TREE=BUILD.NINJA")
    options = parser.parse_args()
    trees: dict[str, Sequence[Unit]] = {
        tree: ninja.units(text) for tree, text in _texts(options.logs).items()
    }
    for tree, text in _texts(options.slots).items():
        trees[tree] = without_waiting(trees[tree], text)
    for tree, text in _texts(options.statements).items():
        trees[tree] = in_order(trees[tree], text)
    print(write(options.name, options.about, trees))


def _texts(files: Sequence[str]) -> dict[str, str]:
    """Return the text by tree for arguments of the form TREE=FILE."""
    return {tree: Path(file).read_text(encoding="utf-8") for tree, file in (f.split("=", 1) for f in files)}


if __name__ == "__main__":
    main()

"""CPU seconds of compiles that ran elsewhere, kept beside the results: those of each unit, from slots.tsv.

    python -m benchmarks.cpu_times NAME backend=SLOTS pyt=SLOTS

NAME is that of the cell, or `<release>-upstream` for upstream's recipe.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path

from benchmarks import compiles, unit_times
from ftbuild import whole

# A unit of a tree: its name, and its output's.
Unit = tuple[str, str]
_SUFFIX = ".cpu.tsv"


def path(name: str) -> Path:
    """Where they lie."""
    return unit_times.FOLDER.parent / "cpu" / (name + _SUFFIX)


def read(name: str) -> dict[Unit, float]:
    """CPU seconds by unit."""
    with path(name).open(encoding="utf-8", newline="") as file:
        return {(tree, output): float(cpu) for tree, output, cpu in csv.reader(file, delimiter="\t")}


def write(name: str, seconds: Mapping[Unit, float]) -> Path:
    """A line for each unit: tree, output, CPU seconds."""
    path(name).parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{tree}\t{output}\t{cpu:.2f}\n" for (tree, output), cpu in sorted(seconds.items())]
    whole.write(path(name), "".join(lines))
    return path(name)


def main() -> None:
    """Take the seconds out of logs; a unit that was compiled twice counts with its last time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("logs", nargs="+", metavar="TREE=SLOTS")
    options = parser.parse_args()
    logs = (log.split("=", 1) for log in options.logs)
    found = {
        (tree, job.output): job.cpu for tree, log in logs for job in compiles.jobs(Path(log).read_text())
    }
    print(write(options.name, found))


if __name__ == "__main__":
    main()

"""Load: what the smoke suite's load wrote of each model: latencies, GPU memory meanwhile.

python -m benchmarks.topics.load smoke-load-<variant>.json... --of CELL --out FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.harness import files, origin, smoked
from benchmarks.harness.chart import Lines
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.origin import Measured
from benchmarks.harness.workspace import Workspace, measured
from ftbuild.cli.options import work_folder
from ftbuild.client.latency import percentile
from ftbuild.gates.smoke.job import LOADS
from ftbuild.text.units import MIB

NAME = "load"
GROWTH_BYTES = 16 * MIB
# Points of a curve: a quarter of an hour has more seconds than a picture has columns.
POINTS = 60
Load = Mapping[str, Any]


def needs(workspace: Workspace) -> str | None:
    """Require that the smoke test of the cell has run on a GPU."""
    if not workspace.real:
        return "the sample's models do not compute on a GPU (--real)"
    files = _files(workspace)
    return None if files else f"no load of {workspace.plan().cell.id} is here: invoke smoke, on a GPU"


def run(workspace: Workspace) -> Result:
    """Read what is beside the cell's record."""
    plan = workspace.plan()
    cells = smoked.cells(plan.folder(work_folder())) or (measured(plan),)
    return _result(workspace, map(_read, _files(workspace)), plan.cell.id, cells)


def _files(workspace: Workspace) -> list[Path]:
    return sorted(workspace.plan().folder(work_folder()).glob(f"{LOADS}*.json"))


def _read(file: Path) -> tuple[Path, Load]:
    """Return the file with its load; raise what `summary` raises for anything else."""
    load = json.loads(file.read_text())
    summary(load)
    return file, load


def _result(
    workspace: Workspace, files: Iterable[tuple[Path, Load]], of: str, cells: Sequence[Measured]
) -> Result:
    loads = {f"{of} {file.stem.removeprefix(LOADS)}": load for file, load in files}
    data = {name: summary(load) for name, load in loads.items()}
    return workspace.result(NAME, figures(loads), data, charts(loads), cells=cells).of_files()


def summary(load: Load) -> dict[str, float]:
    """Return the numbers of one load; seconds, and bytes of GPU memory."""
    taken = [seconds for _, seconds in load["answers"]]
    memory = [used for _, used in load["memory"]]
    settled = memory[len(memory) // 4 :] or [0]
    return {
        "seconds": max(at for at, _ in load["answers"]),
        "answers": len(load["answers"]),
        "refusals": load["refusals"],
        "wrong": len(load["wrong"]),
        "p50": percentile(taken, 50),
        "p99": percentile(taken, 99),
        "growth": max(settled) - settled[0],
    }


def figures(loads: Mapping[str, Load]) -> list[Figure]:
    """Return latency, wrong answers and growth of each variant."""
    rates = []
    for name, load in loads.items():
        was = summary(load)
        count = f"{was['answers']:.0f} answers, {was['refusals']:.0f} refusals"
        how = f"measured, 16 clients, {was['seconds']:.0f} s: {count}"
        growth = f"{name}: most GPU memory beyond that after the first quarter"
        rates += [
            Figure(Topic.LOAD, f"{name}: answers that differ from the one alone", was["wrong"], "", 0, how),
            Figure(Topic.LOAD, f"{name}: latency, median", was["p50"], "s", None, how),
            Figure(Topic.LOAD, f"{name}: latency, 99th percentile", was["p99"], "s", None, how),
            Figure(Topic.LOAD, growth, was["growth"], "B", GROWTH_BYTES, how),
        ]
    return rates


def charts(loads: Mapping[str, Load]) -> list[Lines]:
    """Return the charts of latency and of memory over time."""
    latency = {name: _worst(load["answers"]) for name, load in loads.items()}
    memory = {name: tuple((at, used / MIB) for at, used in load["memory"]) for name, load in loads.items()}
    title = "16 clients, a quarter of the requests out of range"
    return [
        Lines("load-latency", f"Latency, 99th percentile: {title}", "seconds", "milliseconds", latency),
        Lines("load-memory", f"GPU memory in use: {title}", "seconds", "MiB", memory),
    ]


def _worst(answers: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the 99th percentile of latency, in milliseconds, over equal parts of the time."""
    part = max(at for at, _ in answers) / POINTS
    by_part = groupby(sorted(answers), key=lambda answer: min(int(answer[0] / part), POINTS - 1))
    return tuple(
        (round((number + 0.5) * part, 1), round(1000 * percentile([taken for _, taken in rate], 99), 3))
        for number, rate in by_part
    )


def main() -> None:
    """Write the record of a load on another machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    load = files.holding("a load of the smoke suite", _read)
    parser.add_argument("loads", nargs="+", type=load, metavar="LOAD")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--of", required=True, help="cell and GPU, which the files do not name")
    origin.add_option(parser)
    options = parser.parse_args()
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    cells = tuple(options.cell) or smoked.cells(options.loads[0][0].parent)
    result = _result(workspace, options.loads, options.of, cells)
    print(result.write(options.out))


if __name__ == "__main__":
    main()

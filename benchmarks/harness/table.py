"""Tables of figures: for the terminal, and as the block of README.md between two comments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.harness.figure import Figure, Result, digits
from ftbuild.errors import ConfigError
from ftbuild.host import files
from ftbuild.text import tables, units

TITLES = ("Topic", "Stack", "What", "Figure", "Goal", "Met", "How it was taken")
BEGIN = "<!-- figures: python -m benchmarks.harness.run --table -->"
END = "<!-- end of figures -->"
_MET = {True: "yes", False: "**no**", None: ""}


def read(folder: Path) -> list[Result]:
    """Read all records of a folder; ConfigError if it has none."""
    found = [Result.read(file) for file in sorted(folder.glob("*.json"))]
    if not found:
        raise ConfigError("there are no results", where=str(folder), hint="invoke dev.bench makes them")
    return found


def text(results: Iterable[Result]) -> str:
    """Return the figures for a terminal."""
    return tables.render(TITLES, [[cell.replace("*", "") for cell in row] for row in _rows(results)])


def markdown(results: Sequence[Result], plots: str) -> str:
    """Return the figures, their machines and dates, and the plots, which lie in the folder `plots`."""
    results = sorted(results, key=_place)
    rows = [TITLES, ["---"] * len(TITLES), *_rows(results)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    drawn = [
        f"![{chart.title}]({plots}/{name})" for result in results for name, chart in result.plots.items()
    ]
    return "\n".join([*lines, "", *map(_origin, results), "", *drawn])


def renew(file: Path, results: Sequence[Result], plots: Path) -> None:
    """Write the figures into the block of a Markdown file; ConfigError if it has no such block."""
    content = file.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError("there is no block for the figures", where=str(file), hint=f"{BEGIN} ... {END}")
    block = markdown(results, os.path.relpath(plots, file.parent))
    files.write_atomic(file, f"{before}{begin}\n\n{block}\n\n{end}{after}")


def amount(value: float, unit: str) -> str:
    """Return a value with its unit: three digits, ratios as precise as their goals, readable bytes."""
    if unit == "B":
        return units.size(value)
    if not unit and abs(value) < 1000:
        return f"{value:.3f}"
    return f"{digits(value)} {unit}".rstrip()


def _rows(results: Iterable[Result]) -> list[Sequence[str]]:
    found = [(figure, result.stack) for result in results for figure in result.figures]
    return [_row(figure, stack) for figure, stack in sorted(found, key=lambda pair: (pair[0].topic, pair[1]))]


def _row(figure: Figure, stack: str) -> Sequence[str]:
    value = amount(figure.value, figure.unit)
    return (figure.topic, stack, figure.what, value, _goal(figure), _MET[figure.met], figure.how)


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"{'≤' if figure.at_most else '≥'} {amount(figure.goal, figure.unit)}"


def _place(result: Result) -> tuple[str, str]:
    return min((figure.topic for figure in result.figures), default=""), result.stack


def _origin(result: Result) -> str:
    machine = result.machine
    where = f"{machine.cores} cores ({machine.processor}), {units.size(machine.memory)}"
    return f"- `{result.benchmark}`, {result.stack} stack: {result.date[:10]}, {where}, load {machine.load:g}"

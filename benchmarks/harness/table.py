"""Tables of figures: for the terminal, and as the block of README.md between two comments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.harness import catalogue
from benchmarks.harness.figure import Figure, Result, digits
from benchmarks.harness.origin import Measured, Origin
from benchmarks.harness.staleness import Verdict
from ftbuild.errors import ConfigError
from ftbuild.host import files
from ftbuild.text import markdown as md
from ftbuild.text import tables, units

TITLES = ("Topic", "Stack", "What", "Figure", "Goal", "Met", "How it was taken")
# Says of each row whether its record is of what the checkout is today.
CURRENT = "Current"
BEGIN = "<!-- figures: python -m benchmarks.harness.run --table -->"
END = "<!-- end of figures -->"
_MET = {True: "yes", False: "**no**", None: ""}
_CURRENT = {True: "yes", False: "**no**", None: "unknown"}
_TODAY = "; today: "
_ID_DIGITS = 12


def read(folder: Path) -> list[Result]:
    """Read all records of a folder; ConfigError if it has none."""
    results = [Result.read(file) for file in sorted(folder.glob("*.json"))]
    if not results:
        raise ConfigError("there are no results", where=str(folder), hint="invoke dev.bench makes them")
    return results


def text(results: Sequence[Result]) -> str:
    """Return the figures for a terminal."""
    rows = [row for _, row in _rows(results)]
    return tables.render(TITLES, [[cell.replace("*", "") for cell in row] for row in rows])


def markdown(results: Sequence[Result], plots: str, verdicts: Sequence[Verdict]) -> str:
    """Return the figures, each with the verdict on its record, where they are from, and the plots.

    The plots lie in the folder `plots`.
    """
    verdict_of = {result.file: verdict for result, verdict in zip(results, verdicts, strict=True)}
    results = sorted(results, key=_place)
    rows = [(*row, _CURRENT[verdict_of[result.file].current]) for result, row in _rows(results)]
    details = filter(None, map(catalogue.details, results))
    drawn = [
        f"![{chart.title}]({plots}/{name})" for result in results for name, chart in result.plots.items()
    ]
    origins = [f"{_origin(result)}{_TODAY}{_verdict(verdict_of[result.file])}" for result in results]
    parts = (grid((*TITLES, CURRENT), rows), *details, "\n".join(origins), "\n".join(drawn))
    return "\n\n".join(parts)


def grid(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return md.table(titles, ([cell.replace("|", "\\|") for cell in row] for row in rows))


def verdicts(results: Sequence[Result], all_verdicts: Sequence[Verdict]) -> str:
    """Return for a terminal whether each record is of what the checkout is today."""
    rows = [
        (result.file, _CURRENT[verdict.current].strip("*"), verdict.why)
        for result, verdict in zip(results, all_verdicts, strict=True)
    ]
    return tables.render(("Record", CURRENT, "Why"), rows)


def without_verdicts(block: str) -> list[str]:
    """Return the lines of a block without what depends on the day on which it is made."""
    lines = [line.partition(_TODAY)[0] for line in block.strip().splitlines()]
    return [line.rstrip(" |").rpartition(" | ")[0] if line.startswith("|") else line for line in lines]


def renew(file: Path, results: Sequence[Result], plots: Path, verdicts: Sequence[Verdict]) -> None:
    """Write the figures into the block of a Markdown file; errors as `divided`."""
    before, _, after = divided(file)
    block = markdown(results, os.path.relpath(plots, file.parent), verdicts)
    files.write_atomic(file, f"{before}{BEGIN}\n\n{block}\n\n{END}{after}")


def divided(file: Path) -> tuple[str, str, str]:
    """Return what is before, in and after the block of a Markdown file; ConfigError if it has none."""
    before, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    block, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError("there is no block for the figures", where=str(file), hint=f"{BEGIN} ... {END}")
    return before, block, after


def amount(value: float, unit: str) -> str:
    """Return a value with its unit: three digits, ratios as precise as their goals, readable bytes."""
    return units.size(value) if unit == "B" else f"{_number(value, unit)} {unit}".rstrip()


def _end(value: float, unit: str) -> str:
    """Return an end of a spread, with a digit more than the figure: a goal may lie between the two."""
    return f"{value:.4g}" if not unit and abs(value) < 1000 else digits(value)


def _number(value: float, unit: str) -> str:
    return f"{value:.3f}" if not unit and abs(value) < 1000 else digits(value)


def _rows(results: Iterable[Result]) -> list[tuple[Result, Sequence[str]]]:
    pairs = [(figure, result) for result in results for figure in result.figures]
    pairs.sort(key=lambda pair: (pair[0].topic, pair[1].stack))
    return [(result, _row(figure, result.stack)) for figure, result in pairs]


def _row(figure: Figure, stack: str) -> Sequence[str]:
    value = amount(figure.value, figure.unit)
    if figure.least is not None and figure.most is not None:
        ends = (_end(end, figure.unit) for end in (figure.least, figure.most))
        value += f" ({' to '.join(ends)})"
    return (figure.topic, stack, figure.name, value, _goal(figure), _MET[figure.met], figure.how)


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"{'≤' if figure.at_most else '≥'} {amount(figure.goal, figure.unit)}"


def _place(result: Result) -> tuple[str, str]:
    return min((figure.topic for figure in result.figures), default=""), result.stack


def _origin(result: Result) -> str:
    """Return on what, when and of what commit a record was taken."""
    machine = result.machine
    loads = "load not recorded" if machine.load is None else f"load {machine.load:g}"
    if machine.load is not None and machine.load_before is not None:
        loads = f"load {machine.load_before:g} before and {machine.load:g} after"
    where = f"{machine.cores} cores ({machine.processor}), {units.size(machine.memory)}, {loads}"
    return f"- `{result.name}`, {result.stack} stack: {result.date[:10]}, {where}{_of(result.origin)}"


def _of(origin: Origin | None) -> str:
    if origin is None:
        return ""
    commit = f"commit {origin.commit[:_ID_DIGITS]}" if origin.commit else "commit unknown"
    changed = " with changes" if origin.changed else ""
    return "".join([f"; {commit}{changed}", *(f", {_cell(measured)}" for measured in origin.cells)])


def _cell(measured: Measured) -> str:
    images = (
        f"{name} {image.removeprefix('sha256:')[:_ID_DIGITS]}" for name, image in measured.images.items()
    )
    return " ".join([f"{measured.cell}@{measured.key or 'unknown'}", *(f"({each})" for each in images)])


def _verdict(verdict: Verdict) -> str:
    known = {True: "current", False: "**not current**", None: "unknown"}[verdict.current]
    return f"{known}{f': {verdict.why}' if verdict.why else ''}"

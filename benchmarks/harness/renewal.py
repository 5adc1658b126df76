"""Records as they are read today: figures by today's definitions, and rows named by their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import catalogue, staleness, table
from benchmarks.harness.figure import Result
from benchmarks.harness.staleness import Verdict

# Until records named their cells, `invoke dev.bench` measured these, and no record of another cell was kept.
OLD_CELLS = {"real": "22.12-sm90-open", "sample": "22.12-sm80"}
# They measure the program itself.
OF_NO_CELL = ("startup",)


def renewed(folder: Path) -> list[Result]:
    """Return the records of a folder with the figures of today, and write those that change."""
    results = table.read(folder)
    fresh = [again(result) for result in results]
    for old, new in zip(results, fresh, strict=True):
        if old != new:
            new.write(folder)
    return fresh


def again(result: Result) -> Result:
    """Return a record with the figures that follow from its data today, each with its cell."""
    new = catalogue.recomputed(result)
    return replace(new, figures=tuple(figure.named(_cell(new)) for figure in new.figures))


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """Return for each record whether it is of what the checkout is today."""
    return [staleness.today(result, catalogue.definition(result.benchmark)) for result in results]


def _cell(result: Result) -> str:
    if result.benchmark in OF_NO_CELL:
        return ""
    if result.origin:
        return result.origin.cells[0].cell if result.origin.cells else ""
    return OLD_CELLS[result.stack]

"""Markdown of the gate records of a nightly run whose cells ran on several machines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ftbuild.errors import FtbuildError
from ftbuild.gates import evidence, records
from ftbuild.gates.report import Gate
from ftbuild.plan import Plan
from ftbuild.text.markdown import table

TITLES = ("Cell", "Key", *(gate.name.capitalize() for gate in evidence.DEMANDS))


def markdown(plans: Iterable[Plan], work: Path) -> str:
    """Return a table with the results of each required gate per cell, by the records in the work folder."""
    return table(TITLES, (_row(plan, plan.folder(work)) for plan in plans))


def _row(plan: Plan, folder: Path) -> tuple[str, ...]:
    return (
        plan.cell.id,
        f"`{plan.key}`",
        *(_ended(plan, folder, gate).replace("|", "\\|") for gate in evidence.DEMANDS),
    )


def _ended(plan: Plan, folder: Path, gate: Gate) -> str:
    """Return `passed`, the failed checks, or why there is no result; then nothing was published."""
    try:
        record = records.read(gate, folder)
        if record is None:
            return "**no record**"
        problem = evidence.against(record, gate, plan)
    except FtbuildError as unusable:
        return f"**no result**: {unusable.what}"
    if problem is None:
        return "passed"
    return f"**failed**: {', '.join(record.failed)}" if record.failed else f"**no result**: {problem}"

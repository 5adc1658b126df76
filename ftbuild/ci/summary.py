"""Markdown of the gate records of a nightly run whose cells ran on several machines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ftbuild.gates import report
from ftbuild.gates.report import SMOKE, VERIFY, Gate
from ftbuild.plan import Plan

TITLES = ("Cell", "Key", "Verify", "Smoke")


def markdown(plans: Iterable[Plan], work: Path) -> str:
    """Return a table with the results of both gates per cell, from the records in the work folder."""
    rows = [_row(plan, plan.folder(work)) for plan in plans]
    lines = [TITLES, ("---",) * len(TITLES), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(plan: Plan, folder: Path) -> tuple[str, ...]:
    return plan.cell.id, f"`{plan.key}`", *(_ended(folder, gate) for gate in (VERIFY, SMOKE))


def _ended(folder: Path, gate: Gate) -> str:
    """Return `passed`, the failed checks, or `no record`, in which case nothing was published."""
    record = report.read(gate, folder)
    if record is None:
        return "**no record**"
    if record.passed:
        return "passed"
    return f"**failed**: {', '.join(record.failed)}".replace("|", "\\|")

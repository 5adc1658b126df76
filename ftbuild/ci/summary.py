"""The gate records of a night whose cells ran on several machines, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ftbuild import build
from ftbuild.plan import Plan
from ftbuild.verdict import SMOKE, VERIFY, Gate, State

TITLES = ("Cell", "Key", "Verify", "Smoke")


def markdown(plans: Iterable[Plan], work: Path) -> str:
    """A table with a row for each cell: how both gates ended, from the records in the work folder."""
    rows = [_row(plan, build.folder(work, plan)) for plan in plans]
    lines = [TITLES, ("---",) * len(TITLES), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(plan: Plan, folder: Path) -> tuple[str, ...]:
    return plan.cell.id, f"`{plan.key}`", *(_ended(folder, gate) for gate in (VERIFY, SMOKE))


def _ended(folder: Path, gate: Gate) -> str:
    """`passed`, the checks that failed, or that there is no record: then nothing was published."""
    try:
        record: Mapping[str, Any] = json.loads((folder / gate.record).read_text())
    except FileNotFoundError:
        return "**no record**"
    if record["passed"]:
        return "passed"
    failed = (f["check"] for f in record["findings"] if f["state"] == State.FAIL)
    return f"**failed**: {', '.join(dict.fromkeys(failed))}".replace("|", "\\|")

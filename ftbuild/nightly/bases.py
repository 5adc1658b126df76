"""The bases of a run: each is made once, by a command of its own, before the cells that need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ftbuild import plan_file
from ftbuild.errors import FtbuildError
from ftbuild.nightly import artifacts
from ftbuild.nightly.cell import blank
from ftbuild.nightly.commands import Command
from ftbuild.nightly.record import CellRecord, outcome
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter

FOLDER = "bases"


def make(
    plans: Iterable[Plan], options: Sequence[str], work: Path, folder: Path, report: Reporter
) -> dict[str, CellRecord]:
    """Run `invoke base` with these options for each base; return the records of the cells whose base failed.

    The logs are in the run's folder. A cell whose plan cannot be handed to the command fails alone.
    """
    failed: dict[str, CellRecord] = {}
    codes: dict[str, int] = {}
    for plan in plans:
        base = plan.base
        log = folder / FOLDER / f"{base.name}-{base.serving.rpartition(':')[2]}.log"
        try:
            if base.serving not in codes:
                codes[base.serving] = _command(plan, options, work).stream(log, report)
        except FtbuildError as unusable:
            failed[plan.cell.id] = _record(plan, unusable.exit_code, str(unusable))
        else:
            if code := codes[base.serving]:
                failed[plan.cell.id] = _record(plan, code, artifacts.message(log))
    return failed


def _command(plan: Plan, options: Sequence[str], work: Path) -> Command:
    file = plan_file.place(plan, work)
    plan_file.write(plan, file)
    return Command("base", ["--plan", str(file), *options])


def _record(plan: Plan, code: int, why: str) -> CellRecord:
    return replace(blank(plan, *outcome(code), f"base {plan.base.name}: {why}"), exit_code=code)

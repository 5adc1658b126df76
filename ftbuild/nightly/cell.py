"""One cell's night: build, smoke, publish, each the command that a person would type, with its exit code."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from ftbuild.build import bake
from ftbuild.errors import BuildError, Interrupted
from ftbuild.host import shell
from ftbuild.nightly import artifacts, budget
from ftbuild.nightly.record import CellRecord, Reason, State, Step, outcome
from ftbuild.plan import Plan
from ftbuild.sm import sm_list
from ftbuild.text.reporter import Reporter

# BuildKit's lines, and pytest's for each test: the log has them.
_DETAIL = re.compile(r"^\[[^]]+\] #\d+ |::test_\w+")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class CellOptions:
    """What is done for each cell. `registry` None: not published; `build`, `publish`: more options.

    `shares_gpu`: the smoke tests want the same GPUs, so there is one at a time.
    """

    config: Path
    work: Path
    jobs: int
    registry: str | None
    smoke: bool = True
    shares_gpu: bool = True
    build: Sequence[str] = ()
    publish: Sequence[str] = ()
    allow_unsmoked: bool = False


@dataclass(frozen=True)
class RunContext:
    """What the cells of a night share: folder, clock, the word to stop, and the right to test on the GPU."""

    folder: Path
    begun: float
    stop: Event
    gpu: AbstractContextManager[object]
    unfit: Callable[[Plan], str | None]
    say: Reporter

    def now(self) -> float:
        """Seconds since the night began."""
        return time.monotonic() - self.begun


def blank(
    plan: Plan, state: State = State.SKIPPED, reason: Reason = Reason.NOT_RUN, detail: str = ""
) -> CellRecord:
    """The record of a cell that nothing has been done for."""
    cell = plan.cell
    return CellRecord(
        cell.id,
        cell.triton,
        cell.sms,
        cell.base,
        state,
        reason,
        detail,
        key=plan.key,
        patches=artifacts.patches(plan),
    )


def run(plan: Plan, orders: CellOptions, shift: RunContext) -> CellRecord:
    """Do everything for a cell until a step fails, and say how it ended."""
    start = shift.now()
    record = _run(plan, orders, shift, replace(blank(plan), start=start))
    return replace(record, seconds=shift.now() - start)


def _run(plan: Plan, orders: CellOptions, shift: RunContext, record: CellRecord) -> CellRecord:
    record = _build(plan, orders, shift, record)
    if record.state is not State.PASSED:
        return record
    untested = shift.unfit(plan) if orders.smoke else "the smoke test is switched off"
    if untested is None:
        with shift.gpu:
            record = _add(record, _step(plan, shift, "smoke", _selected(plan, orders)))
    if record.state is State.PASSED and orders.registry and (untested is None or orders.allow_unsmoked):
        options = [*_selected(plan, orders), "--registry", orders.registry, *orders.publish]
        record = _add(record, _step(plan, shift, "publish", options))
    return _told_untested(record, untested) if untested and record.state is State.PASSED else record


def _told_untested(record: CellRecord, why: str) -> CellRecord:
    """Good as far as anybody knows, which is not a pass."""
    done = "built, verified and published as untested" if len(record.steps) > 1 else "built and verified"
    return replace(record, state=State.SKIPPED, reason=Reason.NO_GPU, detail=f"{done}; {why}")


def _build(plan: Plan, orders: CellOptions, shift: RunContext, record: CellRecord) -> CellRecord:
    """Build, and after running out of memory again with fewer jobs."""
    jobs: int | None = orders.jobs
    while jobs:
        options = [*_selected(plan, orders), "--jobs", str(jobs), "--progress", "plain", *orders.build]
        step = replace(_step(plan, shift, "build", options, len(record.steps)), jobs=jobs)
        record = _add(record, step)
        log = plan.folder(orders.work) / bake.LOG
        if step.code != BuildError.exit_code or not _ran_out_of_memory(log) or shift.stop.is_set():
            return record
        if jobs := budget.fewer(jobs):
            note = f"ran out of memory with {step.jobs} compile jobs at a time, tried again with {jobs}"
            shift.say(f"[{plan.cell.id}] {note}")
            record = replace(record, notes=(*record.notes, note))
    return record


def _ran_out_of_memory(log: Path) -> bool:
    try:
        return bake.ran_out_of_memory(log.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False


def _selected(plan: Plan, orders: CellOptions) -> list[str]:
    """The options that mean this cell, also one with several SMs."""
    sms = sm_list(plan.cell.sms)
    chosen = ["--triton", plan.cell.triton, "--sm", sms, "--base", plan.cell.base]
    return [*chosen, "--config", str(orders.config)]


def _step(plan: Plan, shift: RunContext, name: str, options: Sequence[str], tries: int = 0) -> Step:
    """Run one of our own commands; its lines about the cell are passed on, the rest is in the log."""
    log = Path("cells", plan.cell.id, f"{name}-{tries + 1}.log" if tries else f"{name}.log")
    (shift.folder / log).parent.mkdir(parents=True, exist_ok=True)
    (shift.folder / log).unlink(missing_ok=True)
    shown = shell.display(["invoke", name, *options])
    if shift.stop.is_set():
        return Step(name, shown, str(log), shift.now(), 0.0, Interrupted.exit_code)

    def pass_on(line: str) -> None:
        if line.startswith(f"[{plan.cell.id}]") and not _DETAIL.search(line):
            shift.say(line)

    start = shift.now()
    argv = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), name, *options]
    code = shell.stream(argv, log=shift.folder / log, env={"PYTHONUNBUFFERED": "1"}, on_line=pass_on)
    return Step(name, shown, str(log), start, shift.now() - start, _code(code, shift))


def _code(code: int, shift: RunContext) -> int:
    """A command that a signal ended, or any once the night is stopped, was interrupted."""
    return Interrupted.exit_code if code < 0 or (code and shift.stop.is_set()) else code


def _add(record: CellRecord, step: Step) -> CellRecord:
    state, reason = outcome(step.code)
    return replace(record, steps=(*record.steps, step), state=state, reason=reason, exit_code=step.code)

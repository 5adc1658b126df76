"""The steps of one cell: build, smoke and publish, each run as its own command."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from ftbuild import plan_file
from ftbuild.build import bake, build_log, lost, stages
from ftbuild.errors import BuildError, Interrupted
from ftbuild.nightly import artifacts, budget, watch
from ftbuild.nightly.builders import Share
from ftbuild.nightly.commands import Command
from ftbuild.nightly.record import CellRecord, Reason, State, Step, outcome
from ftbuild.nightly.watch import Watch
from ftbuild.plan import Plan
from ftbuild.proven import NEVER
from ftbuild.publishing import substituted
from ftbuild.text.reporter import Reporter

# BuildKit's lines, the empty ones between its steps, and pytest's for each test: kept in the log only.
_DETAIL = re.compile(r"^\[[^]]+\](?: #\d+ |\s*$)|::test_\w+")


@dataclass(frozen=True)
class CellOptions:
    """The steps of each cell. `registry` None: not published; `build`, `publish`: further options.

    `stage` is the path below the registry where images wait, None: none of their own.

    `shares_gpu`: smoke tests use the same GPUs, so they run one at a time.
    """

    config: Path
    work: Path
    registry: str | None
    stage: str | None = None
    smoke: bool = True
    shares_gpu: bool = True
    build: Sequence[str] = ()
    publish: Sequence[str] = ()
    allow_unsmoked: bool = False


@dataclass(frozen=True)
class RunContext:
    """State shared by the cells of a run: folder, clock, stop event, and the lock of the GPU.

    `untestable` returns why the images of a plan cannot be smoke-tested here, or None; `silence` why a
    builder does not answer, or an empty text.
    """

    folder: Path
    begun: float
    stop: Event
    gpu: AbstractContextManager[object]
    untestable: Callable[[Plan], str | None]
    silence: Callable[[str], str]
    report: Reporter

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.begun


class BuilderLost(Exception):
    """The builder of a cell is gone; `record` is what the cell has so far."""

    def __init__(self, record: CellRecord, why: str) -> None:
        super().__init__(why)
        self.record = record
        self.why = why


def blank(
    plan: Plan, state: State = State.SKIPPED, reason: Reason = Reason.NOT_RUN, detail: str = ""
) -> CellRecord:
    """Return the record of a cell without any step."""
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


def run(
    plan: Plan,
    share: Share,
    options: CellOptions,
    context: RunContext,
    *,
    before: CellRecord | None = None,
    is_tested: bool = False,
) -> CellRecord:
    """Run the steps of a cell until one fails, and return its record, which continues `before`.

    A cell that is tested already, in the run that this one resumes, is only published. Raises BuilderLost if
    the builder is gone.
    """
    plan_file.write(plan, plan_file.place(plan, options.work))
    record = before or replace(blank(plan), start=context.now())
    if is_tested:
        record = _publish(plan, options, context, record)
    else:
        record = _run(plan, share, options, context, record)
    return replace(record, seconds=context.now() - record.start)


def _run(
    plan: Plan, share: Share, options: CellOptions, context: RunContext, record: CellRecord
) -> CellRecord:
    record = _build(plan, share, options, context, record)
    if record.state is not State.PASSED:
        return record
    untested = context.untestable(plan) if options.smoke else "the smoke test is off"
    if untested is None:
        with context.gpu:
            record = _add(record, _step(plan, context, "smoke", _handed(plan, options)))
    if record.state is State.PASSED and options.registry and (untested is None or options.allow_unsmoked):
        record = _publish(plan, options, context, record)
    return _mark_untested(record, plan, untested) if untested and record.state is State.PASSED else record


def _publish(plan: Plan, options: CellOptions, context: RunContext, record: CellRecord) -> CellRecord:
    assert options.registry is not None
    staged = ["--stage", options.stage] if options.stage else []
    arguments = [*_handed(plan, options), "--registry", options.registry, *staged, *options.publish]
    record = _add(record, _step(plan, context, "publish", arguments))
    return replace(record, registry=options.registry) if record.state is State.PASSED else record


def _mark_untested(record: CellRecord, plan: Plan, why: str) -> CellRecord:
    """Turn a pass into a skip: an image that no GPU has tested has not passed."""
    published = record.steps[-1].name == "publish"
    done = "built, verified and published as untested" if published else "built and verified"
    never = f" ({plan.tried})" if NEVER in plan.tried else ""
    return replace(record, state=State.SKIPPED, reason=Reason.NO_GPU, detail=f"{done}{never}; {why}")


def _build(
    plan: Plan, share: Share, options: CellOptions, context: RunContext, record: CellRecord
) -> CellRecord:
    """Build; after running out of memory, build again with fewer jobs."""
    chosen = [*options.build, *share.arguments(options.registry, options.stage)]
    jobs: int | None = share.budget.jobs
    while jobs:
        arguments = [*_handed(plan, options), "--jobs", str(jobs), "--progress", "plain", *chosen]
        with watch.over(share.name, context.silence) as watched:
            step = _step(plan, context, "build", arguments, len(record.steps), watched.given_up)
        step = replace(step, jobs=jobs, builder=share.name)
        record = replace(_add(record, step), builder=share.name)
        if why := _loss(share, step, watched, context):
            note = f"builder {share.name} was lost: {why}"
            raise BuilderLost(replace(record, notes=(*record.notes, note)), why)
        if not step.code:
            taken = substituted.read(plan.folder(options.work))
            return replace(record, notes=(*record.notes, *substituted.sentences(taken)))
        log = plan.folder(options.work) / bake.LOG
        if step.code != BuildError.exit_code or not _ran_out_of_memory(log) or context.stop.is_set():
            return record
        if jobs := budget.fewer(jobs):
            note = f"ran out of memory with {step.jobs} compile jobs, retried with {jobs}"
            context.report(f"[{plan.cell.id}] {note}")
            record = replace(record, notes=(*record.notes, note))
    return record


def _loss(share: Share, step: Step, watched: Watch, context: RunContext) -> str:
    """Return why the builder of a failed build is gone; empty if it is not.

    One that was restarted meanwhile is recognized by the output of the build.
    """
    if not share.name or not step.code or context.stop.is_set():
        return ""
    seen = watched.why if watched.given_up.is_set() else context.silence(share.name)
    return seen or lost.reason(_text(context.folder / step.log))


def _ran_out_of_memory(log: Path) -> bool:
    return build_log.ran_out_of_memory(_text(log))


def _text(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _handed(plan: Plan, options: CellOptions) -> list[str]:
    """Return the options that hand the plan of this cell to a command."""
    return ["--plan", str(plan_file.place(plan, options.work)), "--config", str(options.config)]


def _step(
    plan: Plan,
    context: RunContext,
    name: str,
    arguments: Sequence[str],
    tries: int = 0,
    until: Event | None = None,
) -> Step:
    """Run an ftbuild command, at most `until` an event; report its lines about the cell, and log them all."""
    log = Path("cells", plan.cell.id, f"{name}-{tries + 1}.log" if tries else f"{name}.log")
    command = Command(name, arguments)
    if context.stop.is_set():
        return Step(name, str(command), str(log), context.now(), 0.0, Interrupted.exit_code)

    prefix, progress = f"[{plan.cell.id}] ", stages.Progress(context.report)

    def pass_on(line: str) -> None:
        if line.startswith(prefix.rstrip()) and not _DETAIL.search(line):
            context.report(line)
        else:
            progress.read(line.removeprefix(prefix), prefix)

    start = context.now()
    code = command.stream(context.folder / log, pass_on, until)
    return Step(name, str(command), str(log), start, context.now() - start, _code(code, context))


def _code(code: int, context: RunContext) -> int:
    """Return the code of an interruption for a command that failed after the stop."""
    return Interrupted.exit_code if code and context.stop.is_set() else code


def _add(record: CellRecord, step: Step) -> CellRecord:
    state, reason = outcome(step.code)
    return replace(record, steps=(*record.steps, step), state=state, reason=reason, exit_code=step.code)

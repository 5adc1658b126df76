"""The scheduler of a nightly run: all cells in their order, within the budgets of its builders.

Whichever of them fail, the others go on. A cell goes to the builder that is free; one whose builder is lost
goes to another. The report is rewritten after each cell, so that a killed run leaves a correct one, which can
be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from ftbuild.audit import job
from ftbuild.errors import FtbuildError, HostError, Interrupted, worst
from ftbuild.host import failures, shell
from ftbuild.nightly import artifacts, cell
from ftbuild.nightly.builders import Share
from ftbuild.nightly.cell import BuilderLost, CellOptions, RunContext
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, Step, outcome
from ftbuild.nightly.report.write import write_reports
from ftbuild.nightly.waiting import Turn, Waiting
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult

if TYPE_CHECKING:
    import docker

Audit = Callable[[], Sequence[CheckResult]]
# A cell that so many builders did not survive is not tried on the next one.
MAX_LOST = 3


@dataclass(frozen=True)
class Schedule:
    """The work of a run: cells in the order of their start, the builders, and the records of settled cells.

    `run` is the record to start from; a resumed run has the cells of the one it continues. `tested` are the
    ids of cells that passed there and only have to be published. With `fail_fast` no cell starts after one
    has failed.
    """

    run: NightlyRun
    plans: Sequence[Plan]
    shares: Sequence[Share]
    settled: Mapping[str, CellRecord] = field(default_factory=dict)
    fail_fast: bool = False
    tested: Collection[str] = ()


@dataclass(frozen=True)
class Hooks:
    """Calls that a run makes: messages, the tests of GPUs and builders, and the audit beside the cells.

    `untestable` returns why the images of a plan cannot be smoke-tested here, or None; `silence` why a
    builder does not answer, or an empty text.
    """

    report: Reporter
    untestable: Callable[[Plan], str | None]
    silence: Callable[[str], str]
    audit: Audit | None = None


def run(
    client: docker.DockerClient, schedule: Schedule, options: CellOptions, folder: Path, hooks: Hooks
) -> NightlyRun:
    """Run all cells, write the reports into `folder`, and return the whole record.

    Failures are part of the cells' records. Ctrl-C stops the running commands and is recorded too.
    """
    begun = time.monotonic() - schedule.run.seconds
    gpu = Lock() if options.shares_gpu else nullcontext()
    context = RunContext(folder, begun, Event(), gpu, hooks.untestable, hooks.silence, hooks.report)
    recorder = _Recorder(schedule, context)
    recorder.write()
    waiting = Waiting(schedule.plans)
    dealer = _Dealer(client, schedule, options, context, recorder, waiting)
    interrupted = False
    slots = [share for share in schedule.shares for _ in range(share.budget.cells)]
    auditing: Future[Sequence[CheckResult]] | None = None
    working: list[Future[None]] = []
    pool = ThreadPoolExecutor(len(slots) + 1)
    try:
        auditing = pool.submit(hooks.audit) if hooks.audit else None
        for share in slots:
            working.append(pool.submit(dealer.serve, share))
        for done in as_completed(working):
            done.result()
        if auditing:
            recorder.audited(auditing.result())
    except KeyboardInterrupt:
        interrupted = True
        hooks.report("interrupted: stopping the running commands")
        context.stop.set()
        waiting.close()
        shell.interrupt()
        wait(working)
    finally:
        pool.shutdown(cancel_futures=interrupted)
    for turn in waiting.left():
        recorder.enter(_given_up(turn))
    return recorder.write() if interrupted else recorder.close(options.smoke and not options.allow_unsmoked)


@dataclass(frozen=True)
class _Dealer:
    """Gives waiting cells to the builders, each of which asks from a thread of its own."""

    client: docker.DockerClient
    schedule: Schedule
    options: CellOptions
    context: RunContext
    recorder: _Recorder
    waiting: Waiting

    def serve(self, share: Share) -> None:
        """Give a builder one cell after the other, until none is left or the builder is lost."""
        while turn := self.waiting.take(share.name):
            back: Turn | None = None
            try:
                back = self._attempt(turn, share)
            finally:
                self.waiting.end(back)

    def _attempt(self, turn: Turn, share: Share) -> Turn | None:
        """Run a cell on a builder; return its turn on another one if this one is lost."""
        try:
            tested = self.schedule.tested
            record = _run_safely(self.client, turn, share, self.options, self.context, tested)
        except BuilderLost as lost:
            if self.waiting.lose(share.name):
                self.recorder.lose(share.name, lost.why)
            again = Turn(turn.plan, lost.record, (*turn.lost, share.name))
            if len(again.lost) < MAX_LOST:
                return again
            record = _given_up(again)
        self.recorder.enter(record)
        stops = self.schedule.fail_fast and record.exit_code and not self.context.stop.is_set()
        if stops and self.waiting.close():
            self.context.report("a cell failed: no further cell is started (--fail-fast)")
        return None


def _given_up(turn: Turn) -> CellRecord:
    """Return the record of a cell that no builder is left for, or that too many did not survive."""
    record, code = turn.record or cell.blank(turn.plan), HostError.exit_code
    state, reason = outcome(code)
    lost = f"the builders {', '.join(turn.lost)} were lost while they built it" if turn.lost else ""
    detail = lost if len(turn.lost) >= MAX_LOST else "; ".join(filter(None, ["no builder is left", lost]))
    hint = "\n  next:  docker buildx ls shows which builders answer; invoke nightly --resume continues"
    return replace(record, state=state, reason=reason, exit_code=code, detail=f"{detail}{hint}")


def begin(schedule: Schedule, folder: Path) -> None:
    """Write the reports of a run before its first cell; until its end, a run counts as interrupted."""
    cells = _sorted(_records(schedule))
    write_reports(replace(schedule.run, cells=cells, exit_code=Interrupted.exit_code), folder)


def _records(schedule: Schedule) -> dict[str, CellRecord]:
    return {plan.cell.id: cell.blank(plan) for plan in schedule.plans} | dict(schedule.settled)


def _sorted(records: Mapping[str, CellRecord]) -> tuple[CellRecord, ...]:
    return tuple(sorted(records.values(), key=lambda r: (r.triton, r.base, r.sms)))


class _Recorder:
    """The growing record of the run, written after every entry."""

    def __init__(self, schedule: Schedule, context: RunContext) -> None:
        self._context = context
        self._run = schedule.run
        self._writing = Lock()
        self._cells = _records(schedule)

    def enter(self, record: CellRecord) -> None:
        """Add the record of a cell that ended."""
        with self._writing:
            self._cells[record.cell] = record
            self._context.report(f"[{record.cell}] {record.state} {record.reason}".rstrip())
            self._try_to_write()

    def lose(self, name: str, why: str) -> None:
        """Add that a builder is gone."""
        with self._writing:
            self._context.report(f"builder {name} is not used any more in this run: {why}")
            lost = [
                replace(b, lost=why, lost_at=self._context.now()) if b.name == name else b
                for b in self._run.builders
            ]
            self._run = replace(self._run, builders=tuple(lost))
            self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self.write()
        except FtbuildError as full:  # the other cells go on; the last report counts
            self._context.report(f"the report is not written: {full}")

    def audited(self, findings: Sequence[CheckResult]) -> None:
        """Add the findings of the audit."""
        self._run = replace(self._run, audit=tuple(findings))

    def write(self, exit_code: int = Interrupted.exit_code) -> NightlyRun:
        """Write all reports and return the record so far; until its end, a run counts as interrupted."""
        cells = _sorted(self._cells)
        self._run = replace(self._run, seconds=self._context.now(), cells=cells, exit_code=exit_code)
        write_reports(self._run, self._context.folder)
        return self._run

    def close(self, to_be_tested: bool) -> NightlyRun:
        """Write and return the whole record with the worst exit code, also that of an untested matrix.

        A run whose cells have not all had their turn stays interrupted, unless something worse is known.
        """
        codes = [record.exit_code for record in self._cells.values()]
        untested = to_be_tested and self._any(Reason.NO_GPU) and not self._any(Reason.NONE)
        code = worst([*codes, job.exit_code(self._run.audit), HostError.exit_code if untested else 0])
        unfinished = Interrupted.exit_code if self._any(Reason.NOT_RUN) else 0
        return self.write(code or unfinished)

    def _any(self, reason: Reason) -> bool:
        return any(record.reason is reason for record in self._cells.values())


def _run_safely(
    client: docker.DockerClient,
    turn: Turn,
    share: Share,
    options: CellOptions,
    context: RunContext,
    tested: Collection[str],
) -> CellRecord:
    """Return a cell's record, in which an unexpected failure ends this cell only.

    Raises BuilderLost if the builder is gone.
    """
    plan = turn.plan
    try:
        with failures.reported():
            is_tested = plan.cell.id in tested
            record = cell.run(plan, share, options, context, before=turn.record, is_tested=is_tested)
            return _with_artifacts(client, plan, plan.folder(options.work), record, context.folder)
    except BuilderLost:
        raise
    except Exception as problem:
        code = problem.exit_code if isinstance(problem, FtbuildError) else FtbuildError.exit_code
        detail = str(problem) if isinstance(problem, FtbuildError) else f"{type(problem).__name__}: {problem}"
        return replace(cell.blank(plan, *outcome(code), detail), exit_code=code)


def _with_artifacts(
    client: docker.DockerClient, plan: Plan, folder: Path, record: CellRecord, reports: Path
) -> CellRecord:
    last: Step | None = record.steps[-1] if record.steps else None
    log = reports / last.log if last else None
    failed = record.state in (State.FAILED, State.ERROR)
    return replace(
        record,
        detail=artifacts.failure(log, folder, record.reason) if failed and log else record.detail,
        tail=artifacts.tail(log) if log else (),
        images=artifacts.images(client, plan, folder),
        compiles=artifacts.compiles(plan, folder),
        figures=artifacts.figures(folder),
    )

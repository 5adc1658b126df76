"""The scheduler of a nightly run: all cells within one budget, longest first, whichever of them fail.

The report is rewritten after each cell, so that a killed run leaves a correct one, which can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from ftbuild.audit import job
from ftbuild.errors import FtbuildError, HostError, Interrupted, worst
from ftbuild.host import failures, shell
from ftbuild.nightly import artifacts, cell
from ftbuild.nightly.cell import CellOptions, RunContext
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, Step, outcome
from ftbuild.nightly.report.write import write_reports
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState

if TYPE_CHECKING:
    import docker

Audit = Callable[[], Sequence[CheckResult]]


@dataclass(frozen=True)
class Schedule:
    """The work of a run: cells in the order of their start, and the records of those already settled.

    `run` is the record to start from; a resumed run has the cells of the one it continues. `tested` are the
    ids of cells that passed there and only have to be published. With `fail_fast` no cell starts after one
    has failed.
    """

    run: NightlyRun
    plans: Sequence[Plan]
    settled: Mapping[str, CellRecord] = field(default_factory=dict)
    at_a_time: int = 1
    fail_fast: bool = False
    tested: Collection[str] = ()


@dataclass(frozen=True)
class Hooks:
    """Calls that a run makes: messages, the test whether a GPU fits, and the audit beside the cells.

    `untestable` returns why the images of a plan cannot be smoke-tested here, or None.
    """

    report: Reporter
    untestable: Callable[[Plan], str | None]
    audit: Audit | None = None


def run(
    client: docker.DockerClient, schedule: Schedule, options: CellOptions, folder: Path, hooks: Hooks
) -> NightlyRun:
    """Run all cells, write the reports into `folder`, and return the whole record.

    Failures are part of the cells' records. Ctrl-C stops the running commands and is recorded too.
    """
    begun = time.monotonic() - schedule.run.seconds
    gpu = Lock() if options.shares_gpu else nullcontext()
    context = RunContext(folder, begun, Event(), gpu, hooks.untestable, hooks.report)
    recorder = _Recorder(schedule, context)
    enough = Event()

    def work_on(plan: Plan) -> CellRecord:
        """Run a cell unless one has failed: the worker checks, since it starts its next cell at once."""
        if enough.is_set():
            return cell.blank(plan)
        record = _run_safely(client, plan, options, context, is_tested=plan.cell.id in schedule.tested)
        if schedule.fail_fast and record.exit_code and not (enough.is_set() or context.stop.is_set()):
            enough.set()
            hooks.report("a cell failed: no further cell is started (--fail-fast)")
        return record

    recorder.write()
    interrupted = False
    with ThreadPoolExecutor(schedule.at_a_time) as pool:
        auditing = pool.submit(hooks.audit) if hooks.audit else None
        running = {pool.submit(work_on, plan): plan for plan in schedule.plans}
        try:
            for done in as_completed(running):
                recorder.enter(done.result())
        except KeyboardInterrupt:
            interrupted = True
            hooks.report("interrupted: stopping the running commands")
            context.stop.set()
            _cancel(running)
            shell.interrupt()
            for done, plan in running.items():
                recorder.enter(cell.blank(plan) if done.cancelled() else done.result())
        if auditing and not interrupted:
            recorder.audited(_findings(auditing))
    return recorder.write() if interrupted else recorder.close(options.smoke and not options.allow_unsmoked)


class _Recorder:
    """The growing record of the run, written after every entry."""

    def __init__(self, schedule: Schedule, context: RunContext) -> None:
        self._context = context
        self._run = schedule.run
        self._cells = {plan.cell.id: cell.blank(plan) for plan in schedule.plans} | dict(schedule.settled)

    def enter(self, record: CellRecord) -> None:
        """Add the record of a cell that ended."""
        self._cells[record.cell] = record
        self._context.report(f"[{record.cell}] {record.state} {record.reason}".rstrip())
        try:
            self.write()
        except FtbuildError as full:  # the other cells go on; the last report counts
            self._context.report(f"the report is not written: {full}")

    def audited(self, findings: Sequence[CheckResult]) -> None:
        """Add the findings of the audit."""
        self._run = replace(self._run, audit=tuple(findings))

    def write(self, exit_code: int = Interrupted.exit_code) -> NightlyRun:
        """Write all reports and return the record so far; until its end, a run counts as interrupted."""
        records = tuple(sorted(self._cells.values(), key=lambda r: (r.triton, r.base, r.sms)))
        self._run = replace(self._run, seconds=self._context.now(), cells=records, exit_code=exit_code)
        write_reports(self._run, self._context.folder)
        return self._run

    def close(self, to_be_tested: bool) -> NightlyRun:
        """Write and return the whole record with the worst exit code, also that of an untested matrix."""
        codes = [record.exit_code for record in self._cells.values()]
        untested = to_be_tested and self._any(Reason.NO_GPU) and not self._any(Reason.NONE)
        return self.write(
            worst([*codes, job.exit_code(self._run.audit), HostError.exit_code if untested else 0])
        )

    def _any(self, reason: Reason) -> bool:
        return any(record.reason is reason for record in self._cells.values())


def _run_safely(
    client: docker.DockerClient, plan: Plan, options: CellOptions, context: RunContext, *, is_tested: bool
) -> CellRecord:
    """Return a cell's record, in which an unexpected failure ends this cell only."""
    try:
        with failures.reported():
            return _run_cell(client, plan, options, context, is_tested=is_tested)
    except Exception as problem:
        code = problem.exit_code if isinstance(problem, FtbuildError) else FtbuildError.exit_code
        detail = str(problem) if isinstance(problem, FtbuildError) else f"{type(problem).__name__}: {problem}"
        return replace(cell.blank(plan, *outcome(code), detail), exit_code=code)


def _run_cell(
    client: docker.DockerClient, plan: Plan, options: CellOptions, context: RunContext, *, is_tested: bool
) -> CellRecord:
    """Return a cell's record with the artifacts of its commands."""
    record = cell.run(plan, options, context, is_tested=is_tested)
    return _with_artifacts(client, plan, plan.folder(options.work), record, context.folder)


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


def _cancel(running: Iterable[Future[CellRecord]]) -> None:
    for waiting in running:
        waiting.cancel()


def _findings(auditing: Future[Sequence[CheckResult]]) -> Sequence[CheckResult]:
    try:
        return auditing.result()
    except FtbuildError as broken:
        return (CheckResult("audit", CheckState.WARN, f"the audit could not run: {broken.what}"),)

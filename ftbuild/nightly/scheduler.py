"""The night: every cell within one budget, longest first, whatever fails, and a report at any moment.

The report is written anew after each cell, so that a killed night leaves a true one, which can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from ftbuild.audit import job
from ftbuild.errors import FtbuildError, HostError, Interrupted, worst
from ftbuild.host import shell
from ftbuild.nightly import artifacts
from ftbuild.nightly import cell as cells
from ftbuild.nightly.cell import CellOptions, RunContext
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, Step, outcome
from ftbuild.nightly.report.write import write
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState

if TYPE_CHECKING:
    import docker

Audit = Callable[[], Sequence[CheckResult]]


@dataclass(frozen=True)
class Schedule:
    """What a night has to do: cells in the order of their start, and what is known of the others already.

    `night` is the record to begin with; a night that is resumed brings the cells of the one it continues.
    """

    night: NightlyRun
    plans: Sequence[Plan]
    settled: Mapping[str, CellRecord] = field(default_factory=dict)


def run(
    client: docker.DockerClient,
    work: Schedule,
    orders: CellOptions,
    folder: Path,
    *,
    at_a_time: int,
    fail_fast: bool,
    unfit: Callable[[Plan], str | None],
    look: Audit | None,
    report: Reporter,
) -> NightlyRun:
    """Schedule through the cells; the whole record, which lies in `folder` too, with all reports.

    What befalls a cell is in its record. On Ctrl-C what runs is ended, and the record says so.
    """
    begun = time.monotonic() - work.night.seconds
    shift = RunContext(folder, begun, Event(), Lock() if orders.shares_gpu else nullcontext(), unfit, report)
    ledger = _Recorder(work, shift)
    enough = Event()

    def work_on(plan: Plan) -> CellRecord:
        """A cell; the worker itself looks whether one has failed, since it is at the next cell at once."""
        if enough.is_set():
            return cells.blank(plan)
        record = _run_safely(client, plan, orders, shift)
        if fail_fast and record.exit_code and not (enough.is_set() or shift.stop.is_set()):
            enough.set()
            report("a cell failed: nothing more is begun (--fail-fast)")
        return record

    ledger.write()
    interrupted = False
    with ThreadPoolExecutor(at_a_time) as pool:
        looking = pool.submit(look) if look else None
        running = {pool.submit(work_on, plan): plan for plan in work.plans}
        try:
            for done in as_completed(running):
                ledger.enter(done.result())
        except KeyboardInterrupt:
            interrupted = True
            report("interrupted: ending what runs")
            shift.stop.set()
            _cancel(running)
            shell.interrupt()
            for done, plan in running.items():
                ledger.enter(cells.blank(plan) if done.cancelled() else done.result())
        if looking and not interrupted:
            ledger.audited(_findings(looking))
    return ledger.write() if interrupted else ledger.close(orders.smoke and not orders.allow_unsmoked)


class _Recorder:
    """The record of the night as it grows, written after every entry."""

    def __init__(self, work: Schedule, shift: RunContext) -> None:
        self._shift = shift
        self._night = work.night
        self._cells = {plan.cell.id: cells.blank(plan) for plan in work.plans} | dict(work.settled)

    def enter(self, record: CellRecord) -> None:
        """How a cell ended."""
        self._cells[record.cell] = record
        self._shift.say(f"[{record.cell}] {record.state} {record.reason}".rstrip())
        self.write()

    def audited(self, findings: Sequence[CheckResult]) -> None:
        """What the audit found."""
        self._night = replace(self._night, audit=tuple(findings))

    def write(self, exit_code: int = Interrupted.exit_code) -> NightlyRun:
        """The record so far, with all its reports; until the end a night counts as interrupted."""
        records = tuple(sorted(self._cells.values(), key=lambda r: (r.triton, r.base, r.sms)))
        self._night = replace(self._night, seconds=self._shift.now(), cells=records, exit_code=exit_code)
        write(self._night, self._shift.folder)
        return self._night

    def close(self, to_be_tested: bool) -> NightlyRun:
        """The whole record, with the worst of all codes; that no cell was tested is one of them."""
        codes = [record.exit_code for record in self._cells.values()]
        untested = to_be_tested and self._any(Reason.NO_GPU) and not self._any(Reason.NONE)
        return self.write(
            worst([*codes, job.exit_code(self._night.audit), HostError.exit_code if untested else 0])
        )

    def _any(self, reason: Reason) -> bool:
        return any(record.reason is reason for record in self._cells.values())


def _run_safely(
    client: docker.DockerClient, plan: Plan, orders: CellOptions, shift: RunContext
) -> CellRecord:
    """A cell's record; a failure that nobody foresaw is this cell's, not the night's."""
    try:
        return _run_cell(client, plan, orders, shift)
    except Exception as problem:
        code = problem.exit_code if isinstance(problem, FtbuildError) else FtbuildError.exit_code
        detail = f"{type(problem).__name__}: {problem}"
        return replace(cells.blank(plan, *outcome(code), detail), exit_code=code)


def _run_cell(client: docker.DockerClient, plan: Plan, orders: CellOptions, shift: RunContext) -> CellRecord:
    """A cell's record with all that its commands left behind."""
    record = cells.run(plan, orders, shift)
    return _with_artifacts(client, plan, plan.folder(orders.work), record, shift.folder)


def _with_artifacts(
    client: docker.DockerClient, plan: Plan, folder: Path, record: CellRecord, reports: Path
) -> CellRecord:
    last: Step | None = record.steps[-1] if record.steps else None
    log = reports / last.log if last else None
    failed = record.state in (State.FAILED, State.ERROR)
    return replace(
        record,
        detail=artifacts.complaint(log) if failed and log else record.detail,
        tail=artifacts.tail(log) if log else (),
        images=artifacts.images(client, plan, folder),
        compiles=artifacts.compiles(plan, folder),
        figures=artifacts.figures(folder),
    )


def _cancel(running: Iterable[Future[CellRecord]]) -> None:
    for waiting in running:
        waiting.cancel()


def _findings(looking: Future[Sequence[CheckResult]]) -> Sequence[CheckResult]:
    try:
        return looking.result()
    except FtbuildError as broken:
        return (CheckResult("audit", CheckState.WARN, f"could not be made: {broken.what}"),)

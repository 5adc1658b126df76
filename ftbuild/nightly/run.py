"""The nightly command's work: find out what is left to do, run it, and print the outcome."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ftbuild import __version__
from ftbuild.config.schema import Config
from ftbuild.engine import builders, buildx, daemon, orphans
from ftbuild.errors import HostError
from ftbuild.gates.smoke import gate
from ftbuild.host import locks
from ftbuild.matrix import Excluded, Matrix
from ftbuild.nightly import auditing, bases, budget, history, notify, resuming, scheduler
from ftbuild.nightly import builders as nightly_builders
from ftbuild.nightly.cell import CellOptions, blank
from ftbuild.nightly.commands import ROOT, Command
from ftbuild.nightly.record import CellRecord, Image, NightlyRun, Reason, State
from ftbuild.nightly.report import wording
from ftbuild.nightly.request import NightlyOptions, Request
from ftbuild.nightly.scheduler import Hooks, Schedule
from ftbuild.plan import Plan
from ftbuild.planning import make_plans
from ftbuild.publishing import names, signing
from ftbuild.publishing.status import PublishStatus, query
from ftbuild.registry.client import Repository
from ftbuild.text import screen, tables, units
from ftbuild.text.reporter import to_stderr

if TYPE_CHECKING:
    import docker

LOCK = "lock"


def execute(request: Request, options: NightlyOptions) -> NightlyRun:
    """Build, test and publish every selected cell, write the reports, and print how each cell ended.

    Raises HostError if another nightly run is active on this machine, or if no engine answers.
    """
    config, work = request.config, request.work
    with ExitStack() as alone:
        alone.enter_context(_alone(work / history.FOLDER / LOCK))
        client = daemon.connect()
        buildx.version()
        orphans.remove(client, to_stderr)
        info = client.info()
        alone.enter_context(_alone(request.cache / f"nightly-{info['ID']}.lock"))
        schedule, folder = _schedule(request, options, info)
        # Whatever ends the run from here on, it can be resumed.
        scheduler.begin(schedule, folder)
        cell_options = _cell_options(request, options, schedule.run.registry)
        schedule = _with_bases(schedule, options, request, folder)
        at_a_time = sum(share.budget.cells for share in schedule.shares)
        to_stderr(
            f"{len(schedule.plans)} cells, {at_a_time} at a time, {schedule.run.jobs} compile jobs in all; "
            f"{folder}"
        )
        hooks = Hooks(
            to_stderr,
            functools.partial(_untestable, client, config),
            builders.silence,
            (lambda: auditing.findings(config.folder, folder)) if options.audit else None,
        )
        done = scheduler.run(client, schedule, cell_options, folder, hooks)
        history.forget(work)
    _announce(done, folder, options.notify)
    return done


def show(request: Request, options: NightlyOptions) -> None:
    """Print the builders of a run with their budgets, and what would become of each cell; build nothing.

    Errors as those of `execute` before it builds anything.
    """
    client = daemon.connect()
    buildx.version()
    schedule, _ = _schedule(request, options, client.info())
    rows = [
        (share.name or "the engine's own", share.driver, share.size, share.budget.jobs, share.budget.cells)
        for share in schedule.shares
    ]
    head = ("Builder", "Driver", "Machine", "Jobs", "Cells at a time")
    print(tables.render(head, [[str(value) for value in row] for row in rows]))
    to_do = [
        (plan.cell.id, "publish" if plan.cell.id in schedule.tested else "build") for plan in schedule.plans
    ]
    done = [(cell, str(wording.look(r.state, r.reason).word)) for cell, r in schedule.settled.items()]
    print(tables.render(("Cell", "To do"), to_do + done))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Exclude other runs in the same work folder, or on the same engine from another checkout.

    They would take each other's budget and move each other's tags. Those of another user, or with another
    cache, are not seen.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            yield
    except Timeout as busy:
        raise HostError(
            f"another nightly run is active on this machine{locks.holder(lock)}",
            where=str(lock),
            hint="wait until it has ended",
        ) from busy


def _begin(request: Request, options: NightlyOptions, info: Mapping[str, Any]) -> tuple[Path, NightlyRun]:
    """Return folder and record to start from: those of the last run when resuming, else new ones."""
    work = request.work
    if options.resume:
        folder, run = resuming.last(work)
        to_stderr(f"resuming the nightly run of {run.started}")
        return folder, replace(run, registry=_registry(options) or run.registry)
    config, now = _recorded(request.config.folder), datetime.now(UTC)
    command = Command("nightly", _recorded_options(request, options))
    run = NightlyRun(
        id=history.new_id(work, now, to_stderr),
        past=history.remembered(work, config),
        started=now.isoformat(timespec="seconds"),
        seconds=0.0,
        exit_code=0,
        command=str(command),
        ftbuild=__version__,
        revision=request.revision.commit,
        registry=_registry(options),
        cores=int(info["NCPU"]),
        memory_bytes=int(info["MemTotal"]),
        jobs=0,
        cells=(),
        config=config,
    )
    return work / history.FOLDER / run.id, run


def _recorded(folder: Path) -> str:
    """Return the configuration folder as records have it: below the checkout, which may be moved."""
    place = folder.resolve()
    return str(place.relative_to(ROOT) if place.is_relative_to(ROOT) else place)


def _registry(options: NightlyOptions) -> str:
    """Return the registry in one spelling, since records are compared by it."""
    return (options.registry or "").rstrip("/")


def _recorded_options(request: Request, options: NightlyOptions) -> list[str]:
    """Return the options for the report, without the webhook's URL, which is a secret."""
    typed = [*request.selected, "--config", str(request.config.folder)]
    typed += [word for builder in options.builders for word in ("--builder", str(builder))]
    typed += options.taking()
    return typed + (["--registry", options.registry] if options.registry else [])


def _schedule(request: Request, options: NightlyOptions, info: Mapping[str, Any]) -> tuple[Schedule, Path]:
    """Return the cells to run, with the records of those that are settled, and the folder of the reports."""
    config = request.config
    folder, run = _begin(request, options, info)
    table, kept = _cells(request, run, resume=options.resume)
    shares = nightly_builders.shares(
        options.builders, info, options.jobs, options.parallel, registry=run.registry
    )
    named = tuple(share.record() for share in shares if share.name)
    run = replace(run, jobs=sum(share.budget.jobs for share in shares), builders=named)
    plans = make_plans(config, table.cells, request.revision)
    settled = {**kept, **{entry.cell.id: _excluded(entry) for entry in table.excluded}}
    done = passed_before(plans, run)
    tested = {record.cell for record in done.values() if run.registry and record.registry != run.registry}
    settled |= {name: record for name, record in done.items() if name not in tested}
    if run.registry:
        settled = _complete(plans, config.matrix.image, run.registry, options) | settled
    ordered = budget.order_of_start([p for p in plans if p.cell.id not in settled], run.past)
    fail_fast = options.fail_fast
    return Schedule(run, ordered, shares, settled, fail_fast=fail_fast, tested=frozenset(tested)), folder


def _cells(request: Request, run: NightlyRun, *, resume: bool) -> tuple[Matrix, Mapping[str, CellRecord]]:
    """Return the cells of the run, and the records of a resumed one that stay as they were."""
    if resume:
        left = resuming.left(request.config, run, request.table, to_stderr)
        return left.table, left.kept
    assert request.table is not None
    return request.table, {}


def _with_bases(schedule: Schedule, options: NightlyOptions, request: Request, folder: Path) -> Schedule:
    """Make the bases of all cells to build; those whose base failed are settled."""
    to_build = [plan for plan in schedule.plans if plan.cell.id not in schedule.tested]
    jobs = ["--jobs", str(options.jobs)] if options.jobs else []
    ways = (share.through(schedule.run.registry, options.stage) for share in schedule.shares)
    through = next(filter(None, ways), [])
    failed = bases.make(
        to_build,
        [*jobs, *options.of_bases(elsewhere=bool(through)), *through],
        request.work,
        folder,
        to_stderr,
    )
    left = [plan for plan in schedule.plans if plan.cell.id not in failed]
    return replace(schedule, plans=left, settled={**schedule.settled, **failed})


def passed_before(plans: Sequence[Plan], run: NightlyRun) -> dict[str, CellRecord]:
    """Return the cells that the resumed run has finished with their present inputs.

    One that it left alone, as a registry had it, has not passed for any other registry.
    """
    keys = {plan.cell.id: plan.key for plan in plans}
    return {
        record.cell: record
        for record in run.cells
        if record.key
        and record.key == keys.get(record.cell)
        and (
            record.state is State.PASSED
            or (record.reason is Reason.PUBLISHED and record.registry == run.registry)
        )
    }


def _complete(
    plans: Sequence[Plan], image: str, registry: str, options: NightlyOptions
) -> dict[str, CellRecord]:
    """Return the cells that the registry has, moving tags and, with a key, its signatures included."""
    repository = names.resolve(registry, options.stage, image).repository
    key = signing.signer(options.sign_key, options.sign_log)
    return {
        status.plan.cell.id: _published(status, repository, registry)
        for status in query(plans, Repository(repository))
        if status.is_complete
        and not (
            key
            and not all(key.has_signed(f"{repository}@{digest}", to_stderr) for digest in status.digests())
        )
    }


def _excluded(entry: Excluded) -> CellRecord:
    cell = entry.cell
    return CellRecord(
        cell.id, cell.triton, cell.sms, cell.base, State.SKIPPED, Reason.EXCLUDED, "\n".join(entry.reasons)
    )


def _published(status: PublishStatus, repository: str, registry: str) -> CellRecord:
    images = {
        product: Image("", 0, f"{repository}:{names.tag(status.plan, product)}", digest or "")
        for product, digest in status.published.items()
    }
    return replace(blank(status.plan, State.SKIPPED, Reason.PUBLISHED), images=images, registry=registry)


def _cell_options(request: Request, options: NightlyOptions, registry: str) -> CellOptions:
    return CellOptions(
        config=request.config.folder,
        work=request.work,
        registry=registry or None,
        stage=options.stage,
        smoke=options.smoke,
        build=options.of_builds(),
        publish=options.of_publications(),
        allow_unsmoked=options.allow_unsmoked,
        shares_gpu=gate.needs_gpu(request.config),
    )


def _untestable(client: docker.DockerClient, config: Config, built: Plan) -> str | None:
    """Return why the images of a cell cannot be smoke-tested here, or None."""
    if not gate.needs_gpu(config):
        return None
    try:
        return gate.unfit(built, gate.find_gpus(client, built))
    except HostError as none:
        return none.what


def _announce(run: NightlyRun, folder: Path, hook: str | None) -> None:
    """Print the table and notify the webhook, whose failure is only a warning.

    What went wrong comes last, next to the counts: a terminal shows the end.
    """
    wrong = wording.troubled(run)
    cells = (*(cell for cell in run.cells if cell not in wrong), *wrong)
    screen.show(tables.render(("Cell", "State", "Why", "Time", "Detail"), list(map(_row, cells))))
    print(f"{wording.headline(run)} in {units.duration(run.seconds)}: {folder / 'report.html'}")
    if hook and (problem := notify.post(hook, run)):
        to_stderr(problem)


def _row(record: CellRecord) -> tuple[str, ...]:
    """Return a cell's row; of a state that says it all, the reason is left out."""
    state, reason = wording.look(record.state, record.reason).word, record.reason.value
    return (
        record.cell,
        state,
        "" if reason.replace("-", " ") == state else reason,
        units.duration(record.seconds) if record.steps else "",
        next(iter(record.detail.splitlines()), ""),
    )

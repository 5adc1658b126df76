"""One nightly run: find out what is left to do, do it, and print how it ended."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ftbuild import __version__
from ftbuild.audit import job
from ftbuild.build import bake
from ftbuild.build import base as bases
from ftbuild.config.schema import Config
from ftbuild.engine import buildx as builder
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, FtbuildError, HostError
from ftbuild.gates.smoke import gate
from ftbuild.host import shell
from ftbuild.matrix import Excluded, Matrix
from ftbuild.nightly import budget, history, notify
from ftbuild.nightly import scheduler as nights
from ftbuild.nightly.budget import Budget
from ftbuild.nightly.cell import CellOptions, blank
from ftbuild.nightly.record import CellRecord, Image, NightlyRun, Reason, State, outcome
from ftbuild.nightly.report import wording
from ftbuild.plan import Plan, Revision, make_plan
from ftbuild.publishing import names
from ftbuild.publishing.status import PublishStatus, survey
from ftbuild.registry.client import Repository
from ftbuild.text import tables, units
from ftbuild.text.reporter import to_stderr

if TYPE_CHECKING:
    import docker

LOCK = "lock"


@dataclass(frozen=True)
class Request:
    """What a nightly run is about: the cells, and the command that asked for it.

    `selected` are the options that chose the cells, as typed; `cache` holds the sources' git objects.
    """

    config: Config
    table: Matrix
    selected: Sequence[str]
    revision: Revision
    work: Path
    cache: Path


@dataclass(frozen=True)
class NightlyOptions:
    """How a nightly run works; None leaves a decision to ftbuild."""

    registry: str | None = None
    stage: str | None = None
    jobs: int | None = None
    parallel: int | None = None
    resume: bool = False
    fail_fast: bool = False
    smoke: bool = True
    audit: bool = True
    allow_unsmoked: bool = False
    sign_key: str | None = None
    sign_log: bool = True
    notify: str | None = None
    ca: Path | None = None
    builder: str | None = None


def run(request: Request, options: NightlyOptions) -> NightlyRun:
    """Build, test and publish every selected cell, write the reports, and print how each cell ended.

    Raises HostError when another nightly run is active on this machine, or when no engine answers.
    """
    config, work = request.config, request.work
    with _alone(work):
        client = daemon.connect()
        builder.version()
        info = client.info()
        here = budget.budget(int(info["NCPU"]), int(info["MemTotal"]), options.jobs, options.parallel)
        folder, begun = _begin(request, options, here, info)
        todo = _todo(client, request, options, begun)
        to_stderr(
            f"{len(todo.plans)} cells, {here.cells} at a time, {here.jobs} compile jobs in all; {folder}"
        )
        done = nights.run(
            client,
            todo,
            _orders(request, options, here, begun.registry),
            folder,
            at_a_time=here.cells,
            fail_fast=options.fail_fast,
            unfit=functools.partial(_unfit, client, config),
            look=(lambda: job.audit(config, request.cache, report=to_stderr)) if options.audit else None,
            report=to_stderr,
        )
        history.forget(work)
    _announce(done, folder, options.notify)
    return done


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Two nights on one machine would take each other's budget, and move each other's tags."""
    lock = work / history.FOLDER / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            yield
    except Timeout as busy:
        raise HostError("another night is running on this machine", where=str(lock)) from busy


def _begin(
    request: Request, options: NightlyOptions, here: Budget, info: dict[str, int]
) -> tuple[Path, NightlyRun]:
    """The folder and the record that the night goes on with: the last one's, or new ones."""
    work = request.work
    if options.resume:
        if (found := history.last(work)) is None:
            raise ConfigError("there is no night to resume", where=str(work / history.FOLDER))
        folder, night = found
        to_stderr(f"resuming the night of {night.started}")
        return folder, replace(night, registry=options.registry or night.registry)
    now = datetime.now(UTC)
    night = NightlyRun(
        id=now.strftime("%Y-%m-%dT%H-%M-%SZ"),
        started=now.isoformat(timespec="seconds"),
        seconds=0.0,
        exit_code=0,
        command=shell.display(["invoke", "nightly", *_typed(request, options)]),
        ftbuild=__version__,
        revision=request.revision.commit,
        registry=options.registry or "",
        cores=int(info["NCPU"]),
        memory_bytes=int(info["MemTotal"]),
        jobs=here.jobs,
        cells=(),
        past=history.remembered(work),
    )
    return work / history.FOLDER / night.id, night


def _typed(request: Request, options: NightlyOptions) -> list[str]:
    """Return the options that say what the run is about; a webhook's address is a secret."""
    typed = [*request.selected, "--config", str(request.config.folder)]
    return typed + (["--registry", options.registry] if options.registry else [])


def _todo(
    client: docker.DockerClient, request: Request, options: NightlyOptions, night: NightlyRun
) -> nights.Schedule:
    """Return the cells to work on, and how the others stand before anything is done."""
    config, table = request.config, request.table
    plans = [make_plan(config, cell, request.revision) for cell in table.cells]
    if options.resume:
        plans = [found for found in plans if found.cell.id in {record.cell for record in night.cells}]
    settled = {entry.cell.id: _excluded(entry) for entry in table.excluded}
    settled |= _done_before(plans, night)
    if night.registry:
        release = names.names(night.registry, options.stage, config.matrix.image).release
        present = (p for p in survey(plans, Repository(release)) if p.is_complete)
        settled |= {p.plan.cell.id: _published(p, release) for p in present if p.plan.cell.id not in settled}
    left = [found for found in plans if found.cell.id not in settled]
    settled |= _without_base(client, left, options, request.work)
    left = [found for found in left if found.cell.id not in settled]
    return nights.Schedule(night, budget.longest_first(left, night.past), settled)


def _done_before(plans: Sequence[Plan], night: NightlyRun) -> dict[str, CellRecord]:
    """The cells that a night which is resumed has done, with the inputs that they have now."""
    keys = {found.cell.id: found.key for found in plans}
    return {
        record.cell: record
        for record in night.cells
        if record.key
        and record.key == keys.get(record.cell)
        and (record.state is State.PASSED or record.reason is Reason.PUBLISHED)
    }


def _excluded(entry: Excluded) -> CellRecord:
    cell = entry.cell
    return CellRecord(
        cell.id, cell.triton, cell.sms, cell.base, State.SKIPPED, Reason.EXCLUDED, "\n".join(entry.reasons)
    )


def _published(presence: PublishStatus, release: str) -> CellRecord:
    images = {
        product: Image("", 0, f"{release}:{names.tag(presence.plan, product)}", digest or "")
        for product, digest in presence.published.items()
    }
    return replace(blank(presence.plan, State.SKIPPED, Reason.PUBLISHED), images=images)


def _without_base(
    client: docker.DockerClient, plans: Iterable[Plan], options: NightlyOptions, work: Path
) -> dict[str, CellRecord]:
    """Make each local base once, before several cells want it; the cells whose base cannot be made."""
    host = bake.Host(jobs=1, ca=options.ca, builder=options.builder, progress="plain")
    failed: dict[str, CellRecord] = {}
    problems: dict[str, FtbuildError | None] = {}
    for found in plans:
        name = found.base.serving
        if name not in problems:
            try:
                bases.ensure(client, found, host, work, report=to_stderr)
                problems[name] = None
            except FtbuildError as failure:
                to_stderr(f"base {found.base.name}: {failure}")
                problems[name] = failure
        if problem := problems[name]:
            state, reason = outcome(problem.exit_code)
            record = blank(found, state, reason, f"base {found.base.name}: {problem}")
            failed[found.cell.id] = replace(record, exit_code=problem.exit_code)
    return failed


def _orders(request: Request, options: NightlyOptions, here: Budget, registry: str) -> CellOptions:
    ca, builder = options.ca, options.builder
    return CellOptions(
        config=request.config.folder,
        work=request.work,
        jobs=here.jobs,
        registry=registry or None,
        smoke=options.smoke,
        build=[*(["--ca", str(ca)] if ca else []), *(["--builder", builder] if builder else [])],
        publish=[
            *(["--stage", options.stage] if options.stage else []),
            *(["--sign-key", options.sign_key] if options.sign_key else []),
            *([] if options.sign_log else ["--no-sign-log"]),
            *(["--allow-unsmoked"] if options.allow_unsmoked else []),
        ],
        allow_unsmoked=options.allow_unsmoked,
        shares_gpu=gate.needs_gpu(request.config),
    )


def _unfit(client: docker.DockerClient, config: Config, built: Plan) -> str | None:
    """Why the images of a cell cannot be smoke-tested here, or None."""
    if not gate.needs_gpu(config):
        return None
    try:
        return gate.unfit(built, gate.find_gpus(client, built))
    except HostError as none:
        return none.what


def _announce(night: NightlyRun, folder: Path, hook: str | None) -> None:
    """The table for people, and the hook's message; what goes wrong with the hook changes nothing else."""
    rows = [
        (
            record.cell,
            wording.look(record.state, record.reason).word,
            record.reason.value,
            units.duration(record.seconds) if record.steps else "",
            next(iter(record.detail.splitlines()), ""),
        )
        for record in night.cells
    ]
    print(tables.render(("Cell", "State", "Why", "Time", "Detail"), rows))
    print(f"{wording.headline(night)} in {units.duration(night.seconds)}: {folder / 'report.html'}")
    if hook and (problem := notify.post(hook, night)):
        to_stderr(problem)

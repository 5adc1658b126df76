"""The main job, cell by cell: check the machine, stage, run BuildKit, name the result.

A cell that fails does not stop the others; the caller ends with the worst exit code. Moving tags move only
after both images of a cell are built and verified, so an interruption leaves nothing half-tagged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ftbuild import cmake
from ftbuild.build import bake, base, context
from ftbuild.config.schema import Config
from ftbuild.engine import buildx as builder
from ftbuild.engine import daemon
from ftbuild.errors import FtbuildError, HostError
from ftbuild.gates.verify import gate
from ftbuild.host import disk
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import GIB

if TYPE_CHECKING:
    import docker

# Layers and compiler cache of one cell of the real sources, measured: docs/architecture.md.
CELL_BYTES = 12 * GIB
# What BuildKit should keep that no image shares: of one cell 10 GB, measured (packages of pyt and SDK, the
# objects), and the objects of others.
CACHE_BYTES = 16 * GIB


@dataclass(frozen=True)
class Options:
    """Where a build works and what it may use of the machine."""

    cache: Path
    work: Path
    jobs: int | None = None
    ca: Path | None = None
    builder: str | None = None
    progress: str = "auto"
    rebuild: bool = False
    layer_cache: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How the build of one cell ended."""

    plan: Plan
    state: str
    seconds: float
    error: FtbuildError | None = None

    @property
    def exit_code(self) -> int:
        """0 when the image exists."""
        return self.error.exit_code if self.error else 0


def build(
    config: Config, plans: Sequence[Plan], options: Options, *, report: Reporter = print
) -> list[Outcome]:
    """Build every plan in turn and keep going.

    Raises HostError before any work when engine or buildx is missing; what befalls one cell is in its
    `Outcome`.
    """
    client = daemon.connect()
    builder.version()
    host = host_of(client, options)
    return [_one(config, plan, client, host, options, report) for plan in plans]


def summary(outcomes: Iterable[Outcome]) -> str:
    """One line per cell: state, seconds, tag."""
    lines = [
        f"{o.plan.cell.id:<24} {o.state:<8} {o.seconds:7.1f} s  {o.plan.tag('runtime')}" for o in outcomes
    ]
    return "\n".join(lines)


def host_of(client: docker.DockerClient, options: Options) -> bake.Host:
    """The job count comes from the engine's machine, which need not be this one, and the builder's limit."""
    info = client.info()
    count = options.jobs or cmake.jobs(int(info["NCPU"]), int(info["MemTotal"]))
    limit = builder.memory(options.builder) if options.builder else None
    if limit:
        count = cmake.jobs(count, limit)
    return bake.Host(
        count,
        options.ca,
        options.builder,
        options.progress,
        options.layer_cache,
        full=bool(options.builder) or daemon.keeps_attestations(info),
    )


def _one(
    config: Config,
    plan: Plan,
    client: docker.DockerClient,
    host: bake.Host,
    options: Options,
    report: Reporter,
) -> Outcome:
    start = time.monotonic()

    def say(message: str) -> None:
        report(f"[{plan.cell.id}] {message}")

    try:
        state = _make(config, plan, client, host, options, say)
    except FtbuildError as error:
        say(f"failed: {error}")
        return Outcome(plan, "failed", time.monotonic() - start, error)
    return Outcome(plan, state, time.monotonic() - start)


def _make(
    config: Config,
    plan: Plan,
    client: docker.DockerClient,
    host: bake.Host,
    options: Options,
    report: Reporter,
) -> str:
    if not options.rebuild and all(daemon.image(client, plan.tag(product)) for product in PRODUCTS):
        report(f"{plan.tag('runtime')} is already built from these inputs (--rebuild builds it anyway)")
        _accept(config, plan, client, options, report)
        return "present"
    base.ensure(client, plan, host, options.work, report=report)
    disk.require(options.work, CELL_BYTES, f"building {plan.cell.id}")
    job = bake.Job(folder(options.work, plan), bake.cell_definition(plan, host))
    carry_out(config, plan, job, host, options, report)
    _accept(config, plan, client, options, report)
    report(f"built {plan.tag('runtime')} and {plan.tag('sdk')}")
    return "built"


def carry_out(
    config: Config,
    plan: Plan,
    job: bake.Job,
    host: bake.Host,
    options: Options,
    report: Reporter,
    *,
    stage_more: Callable[[], None] = lambda: None,
) -> None:
    """Stage the folder of a cell, and what a job needs besides, and run the job in it.

    Raises HostError when another build of the cell is at it.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(job.folder / "lock", timeout=0):
            online = bake.compiles_online()
            context.stage(config, plan, options.cache, job.folder, online=online, report=report)
            stage_more()
            bake.write(job, host)
            if online:
                report(bake.ONLINE)
            report(f"building with {host.jobs} compile jobs, log: {job.log}")
            bake.run(job, host, report=report)
    except Timeout as busy:
        raise HostError("another build of this cell is running", where=str(job.folder)) from busy


def folder(work: Path, plan: Plan) -> Path:
    """Where the staged context, the bake file and the log of a plan lie."""
    return work / plan.cell.id / plan.key


def _accept(
    config: Config,
    plan: Plan,
    client: docker.DockerClient,
    options: Options,
    report: Reporter,
) -> None:
    """Verify both images, then let the moving tags point to them."""
    gate.require(client, config, plan, options.cache, folder(options.work, plan), report=report)
    for product in PRODUCTS:
        daemon.tag(client, plan.tag(product), plan.tag(product, moving=True))

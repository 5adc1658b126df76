"""Running a bake job: job count, staged folder, lock, log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import cmake
from ftbuild.build import bake, context
from ftbuild.engine import builders, daemon
from ftbuild.errors import ConfigError
from ftbuild.host import locks
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import GIB

if TYPE_CHECKING:
    import docker

# Layers and compiler cache of one cell of the real sources, measured: docs/architecture.md.
CELL_BYTES = 12 * GIB
# Cache that BuildKit should keep beyond the images: 10 GB of one cell, measured (packages of pyt and SDK, the
# objects), and the objects of other cells.
CACHE_BYTES = 16 * GIB


@dataclass(frozen=True)
class BuildOptions:
    """Folders and resources of a build; `jobs` is None for as many as fit."""

    cache: Path
    work: Path
    jobs: int | None = None
    ca: Path | None = None
    builder: str | None = None
    progress: str = "auto"
    rebuild: bool = False
    layer_cache: str | None = None


@dataclass(frozen=True)
class CellBuild:
    """The build of one cell: plan, engine, options and reporter."""

    plan: Plan
    client: docker.DockerClient
    host: bake.Host
    options: BuildOptions
    report: Reporter

    @property
    def folder(self) -> Path:
        """Return the folder with the staged context, the bake file, the log and the gate records."""
        return self.plan.folder(self.options.work)


def host_settings(client: docker.DockerClient, options: BuildOptions, *, pushes: bool = False) -> bake.Host:
    """Return the settings of the machine that builds: the builder's, else the engine's, perhaps not this one.

    The job count follows from it; the builder's memory limit also lowers a number that was asked for. Raises
    HostError if the builder does not answer, ConfigError if its images would stay in another engine, unless
    it `pushes` them.
    """
    info = client.info()
    builder = builders.find(options.builder, start=True) if options.builder else None
    machine = (builder and builder.machine) or builders.Machine(int(info["NCPU"]), int(info["MemTotal"]))
    jobs = options.jobs or cmake.jobs(machine.cores, machine.memory_bytes)
    if builder and builder.limit:
        jobs = cmake.jobs(jobs, builder.limit)
    if builder and builder.engine not in ("", info["ID"]) and not pushes:
        raise ConfigError(
            f"builder {builder.name} is another engine, where its images would stay",
            hint="invoke build --push REGISTRY fetches them through a registry; a builder with the driver "
            "docker-container on that engine needs none (docker buildx create)",
        )
    return bake.Host(
        jobs,
        options.ca,
        options.builder,
        options.progress,
        options.layer_cache,
        full=builder.attests if builder else daemon.keeps_attestations(info),
        driver=builder.driver if builder else "",
    )


def run_job(
    cell: CellBuild,
    job: bake.Job,
    *,
    stage_more: Callable[[], None] = lambda: None,
    is_made: Callable[[], bool] = lambda: False,
) -> None:
    """Stage the folder of a cell, call `stage_more` to add to it, and run the job there.

    Another command that works on the cell is waited for; if `is_made` says so, it has done the job. Raises
    HostError if that takes too long.
    """
    with locks.cell(job.folder, cell.report) as waited:
        if waited and is_made():
            cell.report("the other command has built it")
            return
        online = bake.compiles_online()
        plan, options, report = cell.plan, cell.options, cell.report
        context.stage(plan, options.cache, job.folder, online=online, report=report)
        stages = context.WHEEL_STAGES
        context.wheels(plan, stages, options.cache, job.folder, ca=options.ca, report=report)
        stage_more()
        bake.write(job, cell.host)
        if online:
            cell.report(bake.ONLINE)
        cell.report(f"building with {cell.host.jobs} compile jobs, log: {job.log}")
        bake.run(job, cell.host, report=cell.report)

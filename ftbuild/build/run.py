"""The build of a cell, and the settings of the machine that builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import cmake
from ftbuild.build import base, context, definitions, machine, objects
from ftbuild.build.machine import Host
from ftbuild.engine import builders, daemon
from ftbuild.errors import ConfigError
from ftbuild.host import disk
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import GIB

if TYPE_CHECKING:
    import docker

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
    """The build of one cell: plan, engine, options and reporter.

    `elsewhere` returns where the builder pushes the images, None: it loads them into the engine. `objects`
    puts objects into a folder that does not exist, and returns their name and signer, empty for none.
    """

    plan: Plan
    client: docker.DockerClient
    host: Host
    options: BuildOptions
    report: Reporter
    elsewhere: Callable[[], definitions.Staging] | None = None
    objects: Callable[[Path], tuple[str, str]] | None = None
    name: str = "this cell"
    prefix: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder with the staged context, the bake file, the log and the gate records."""
        return self.plan.folder(self.options.work)

    def is_made(self) -> bool:
        """Return whether both images are in the engine."""
        return all(daemon.image(self.client, self.plan.tag(product)) for product in PRODUCTS)

    def make_base(self) -> None:
        """Make the base, or see that it is there."""
        options = self.options
        base.ensure(self.client, self.plan, self.host, options.work, options.cache, report=self.report)

    def prepare(self) -> None:
        """Make the base; ConfigError if the builder has no way to it."""
        options, planned = self.options, self.plan.base
        self.make_base()
        require_room(self.plan, options, f"building {self.plan.cell.id}")
        # A builder that is no engine asks registries only.
        if planned.local and self.host.builder and not self.host.is_engine and not self.elsewhere:
            raise ConfigError(
                f"builder {self.host.builder} cannot get the base {planned.name}, which is built here",
                hint="--push REGISTRY brings it to the builder, and the images back",
            )

    def stage(self) -> Mapping[str, object]:
        """Stage the inputs of the cell."""
        stage(self.plan, self.options, self.folder, self.report)
        staging = self.elsewhere() if self.elsewhere else None
        return definitions.cell(self.plan, self.host, staging, self._brought())

    def _brought(self) -> str:
        """Bring objects into the folder; return their name."""
        objects.RECORD.discard(self.folder)
        if not self.objects:
            return ""
        (self.folder / definitions.OBJECTS).rmdir()
        name, signer = self.objects(self.folder / definitions.OBJECTS)
        if not name:
            (self.folder / definitions.OBJECTS).mkdir(exist_ok=True)
            return ""
        objects.RECORD.write(self.folder, objects.Taken(name, signer, {}, {}))
        return name


def require_room(plan: Plan, options: BuildOptions, purpose: str) -> None:
    """Raise HostError without the free disk that the build of a cell starts with."""
    disk.require(options.work, plan.base.cell_gib * GIB, purpose)


def stage(plan: Plan, options: BuildOptions, folder: Path, report: Reporter) -> None:
    """Write sources, recipe and wheels of a cell into `folder`; errors as those of `context`."""
    online = machine.compiles_online()
    context.empty(folder / definitions.OBJECTS)
    context.stage(plan, options.cache, folder, online=online, report=report)
    context.wheels(plan, context.WHEEL_STAGES, options.cache, folder, ca=options.ca, report=report)
    if online:
        report(machine.ONLINE)


def host_settings(client: docker.DockerClient, options: BuildOptions, *, pushes: bool = False) -> Host:
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
    return Host(
        jobs,
        options.ca,
        options.builder,
        options.progress,
        options.layer_cache,
        full=builder.attests if builder else daemon.keeps_attestations(info),
        driver=builder.driver if builder else "",
    )

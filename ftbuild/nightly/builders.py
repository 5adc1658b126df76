"""The builders of a nightly run: the engine's own, or those that are named, each with a budget of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftbuild import cmake
from ftbuild.engine import builders
from ftbuild.errors import ConfigError
from ftbuild.nightly import budget
from ftbuild.nightly.budget import Budget
from ftbuild.nightly.record import BuilderRecord
from ftbuild.text.units import GIB


@dataclass(frozen=True)
class BuilderRequest:
    """A builder as requested; `jobs` None: as many as its machine has room for."""

    name: str
    jobs: int | None = None

    def __str__(self) -> str:
        """Return it as typed."""
        return f"{self.name}={self.jobs}" if self.jobs else self.name


@dataclass(frozen=True)
class Share:
    """A builder and its budget. Without a name it is the one that a build without `--builder` uses.

    `pushes`: its images come here through the staging repository, as they are not in this engine.
    """

    budget: Budget
    name: str = ""
    driver: str = builders.DOCKER
    machine: builders.Machine | None = None
    pushes: bool = False

    @property
    def size(self) -> str:
        """Return a description of its machine; empty if it is unknown."""
        machine = self.machine
        return f"{machine.cores} cores, {machine.memory_bytes / GIB:.0f} GiB" if machine else ""

    def arguments(self, registry: str | None, stage: str | None) -> list[str]:
        """Return the options of `invoke build` that choose this builder."""
        if not self.name:
            return []
        return ["--builder", self.name, *self.through(registry, stage)]

    def through(self, registry: str | None, stage: str | None) -> list[str]:
        """Return the options that name the way of images between this builder and the engine, if any."""
        if not (registry and self.pushes):
            return []
        return ["--push", registry, *(["--stage", stage] if stage else [])]

    def record(self) -> BuilderRecord:
        """Return what the report says of it at the start of a run."""
        machine = self.machine
        return BuilderRecord(
            self.name,
            self.driver,
            machine.cores if machine else None,
            machine.memory_bytes if machine else None,
            self.budget.jobs,
            self.budget.cells,
        )


def shares(
    requested: Sequence[BuilderRequest],
    info: Mapping[str, Any],
    jobs: int | None = None,
    cells: int | None = None,
    *,
    registry: str,
) -> tuple[Share, ...]:
    """Return the builders of a run on the engine with that `docker info`; `jobs` and `cells` are for each.

    Raises HostError if one does not exist or does not answer; ConfigError if two are the same engine, if the
    size of one is unknown, or if the images of one cannot come here because there is no registry.
    """
    if not requested:
        machine = builders.Machine(int(info["NCPU"]), int(info["MemTotal"]))
        share = budget.for_machine(machine.cores, machine.memory_bytes, jobs, cells)
        return (Share(share, machine=machine),)
    pairs = [(each, builders.find(each.name, start=True)) for each in requested]
    _require_different(builder for _, builder in pairs)
    return tuple(
        _share(builder, each.jobs or jobs, cells, str(info["ID"]), registry) for each, builder in pairs
    )


def _require_different(all_builders: Iterator[builders.Builder]) -> None:
    """Raise ConfigError if two builders would compile on one engine, each with the jobs of all of it."""
    names: dict[str, str] = {}
    for builder in all_builders:
        other = names.setdefault(builder.engine or builder.name, builder.name)
        if other != builder.name:
            raise ConfigError(
                f"the builders {other} and {builder.name} are the same engine", hint="name one of them"
            )


def _share(
    builder: builders.Builder, jobs: int | None, cells: int | None, engine: str, registry: str
) -> Share:
    pushes = builder.engine != engine
    if builder.engine and pushes and not registry:
        raise ConfigError(
            f"builder {builder.name} is another engine, where its images would stay",
            hint="--registry names the registry through which they come here",
        )
    if builder.machine:
        share = budget.for_machine(builder.machine.cores, builder.machine.memory_bytes, jobs, cells)
    elif jobs:
        share = budget.for_jobs(jobs, cells)
    else:
        raise ConfigError(
            f"the driver {builder.driver} does not tell how large the machine of builder {builder.name} is",
            hint=f"--builder {builder.name}=JOBS",
        )
    if builder.limit:
        share = budget.for_jobs(cmake.jobs(share.jobs, builder.limit), cells)
    return Share(share, builder.name, builder.driver, builder.machine, pushes)

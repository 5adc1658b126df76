"""Compiles of a cell's trees, as in a build, on simulated machines with caches of their own."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.harness import files
from benchmarks.harness.wall import Compilers
from benchmarks.harness.workspace import Workspace
from ftbuild.build import base, build_log, context, definitions, machine
from ftbuild.build.machine import Host
from ftbuild.config.recipe import STEPS
from ftbuild.engine import daemon
from ftbuild.errors import BuildError
from ftbuild.host import shell
from ftbuild.host.paths import ca_bundle, cache_folder
from ftbuild.nightly import ninja
from ftbuild.plan import Plan
from ftbuild.text.reporter import to_stderr

# One target for the figures of all trees, so that they compile in parallel.
_FIGURES = "\n\nFROM scratch AS figures\n{}"
_COPY = "COPY --from={tree} /out/info/ /{tree}/\n"
_OBJECT = ".o"
_DEVICE_LINK = "cmake_device_link.o"
_TIMES = re.compile(r"(\d+)m([\d.]+)s")


@dataclass(frozen=True)
class Job:
    """A compiled unit: start and end in seconds since 1970, CPU seconds, its largest process, its slot.

    `memory` is in bytes.
    """

    start: float
    end: float
    output: str
    cpu: float
    memory: int
    slot: int = 0

    @property
    def seconds(self) -> float:
        """Return the wall time in seconds."""
        return self.end - self.start


@dataclass(frozen=True)
class Compile:
    """The cost of a compile in seconds: `wall` and `cpu` while ninja ran, `configure` before it.

    `cpu` has links, ninja and ccache in it, `compilers` only what ran in a slot. `sources` are those that
    went through ccache, each with whether it was a hit; `figures` is the folder with the steps' output by
    tree, until the machine compiles again.
    """

    wall: float
    cpu: float
    configure: float
    jobs: tuple[Job, ...]
    sources: tuple[tuple[str, bool], ...]
    log: str
    figures: Path

    def hits(self, *endings: str, of: Compile | None = None) -> tuple[int, int]:
        """Return ccache hits and number of the sources with these suffixes, if `of` has them too."""
        known = {source for source, _ in (of or self).sources}
        in_sources = [hit for source, hit in self.sources if source.endswith(endings) and source in known]
        return sum(in_sources), len(in_sources)

    def seconds(self) -> dict[str, float]:
        """Return the CPU seconds of the compiled units, by output."""
        return {job.output: job.cpu for job in self.jobs}

    @property
    def compilers(self) -> Compilers:
        """Return the CPU seconds of the compilers alone; ValueError if nothing was compiled."""
        return Compilers.of([job.cpu for job in self.jobs])

    def as_dict(self) -> dict[str, Any]:
        """Return the data for a record."""
        hits, sources = self.hits("")
        seconds = {"wall": self.wall, "cpu": self.cpu, "configure": self.configure}
        alone = self.compilers if self.jobs else Compilers(0.0, 0.0)
        seconds |= {"compilers": alone.total, "longest compiler": alone.longest}
        return {**seconds, "compiled": len(self.jobs), "hits": hits, "of": sources}


@dataclass(frozen=True)
class Machine:
    """A simulated machine: its own caches in the engine's BuildKit, and its own slots."""

    workspace: Workspace
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _edited: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self.workspace.at_end.callback(self._forget)

    def compile(
        self,
        plan: Plan,
        *,
        edited: Mapping[str, str] | None = None,
        parent: str = "",
        script: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> Compile:
        """Compile a cell; raise BuildError with the reason if it fails.

        `edited` adds text to the end of sources, by their path, for all later compiles too. `parent` is the
        parent cgroup of the steps. `script` replaces `steps/compile.sh`. `settings` are added to those of
        the machine, in the form of Host.lines.
        """
        folder = plan.folder(self.workspace.work / self.name)
        host = Host(self.workspace.jobs, ca_bundle(None), progress="plain")
        base.ensure(
            daemon.connect(),
            plan,
            host,
            self.workspace.work,
            cache_folder(),
            report=to_stderr,
        )
        online = machine.REMOTE_STORAGE in (settings or {})
        context.stage(plan, cache_folder(), folder, online=online, report=lambda line: None)
        stages = [
            stage for stage in context.WHEEL_STAGES if stage in (context.TOOLCHAIN, *self.workspace.trees)
        ]
        context.wheels(plan, stages, cache_folder(), folder, ca=host.ca, report=to_stderr)
        dockerfile = folder / "recipe" / "Dockerfile"
        recipe = _own_caches(dockerfile.read_text(), self.name)
        if script:
            (dockerfile.parent / STEPS / "compile.sh").write_text(script)
        copies = "".join(_COPY.format(tree=tree) for tree in self.workspace.trees)
        dockerfile.write_text(recipe + _FIGURES.format(copies))
        for path, text in (edited or {}).items():
            self._edited[path] = self._edited.get(path, "") + text
        for path, text in self._edited.items():  # an edited folder has just been staged again
            with (folder / "sources" / path).open("a") as file:
                file.write(text)
        lines = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        variables = {machine.SETTINGS: host.lines() + lines}
        done = shell.run(_command(plan, host, parent), cwd=folder, env=variables, check=False)
        if done.code:
            raise BuildError("\n".join(build_log.failing_lines(done.stderr)), where=str(folder))
        return read(folder / "figures", done.stderr)

    def _forget(self) -> None:
        """Remove its caches from BuildKit."""
        used = shell.run(["docker", "buildx", "du", "--verbose", "--filter", "type=exec.cachemount"]).stdout
        for record in used.split("\n\n"):
            if f'-{self.name}"' in record and (match := re.search(r"^ID:\s+(\S+)", record, re.M)):
                shell.run(["docker", "builder", "prune", "--force", "--all", "--filter", f"id={match[1]}"])


@functools.cache
def cold(workspace: Workspace) -> tuple[Machine, Compile]:
    """Return a machine and its first compile, shared by all benchmarks of a run, since it takes longest."""
    machine = Machine(workspace)
    to_stderr("a machine with empty caches")
    return machine, machine.compile(workspace.plan())


def _own_caches(dockerfile: str, name: str) -> str:
    """Return the recipe with renamed mounts, and a variable that makes BuildKit run the compile again.

    BuildKit ignores the names of mounts in its cache keys; a benchmark measures repeated compiles.
    """
    for mount in ("ccache", "ccache-remote", "slots"):
        dockerfile = dockerfile.replace(f"id=ftbuild-{mount},", f"id=ftbuild-{mount}-{name},")
    return dockerfile.replace(" /steps/compile.sh ", f" COMPILE={uuid.uuid4().hex} /steps/compile.sh ")


def _command(plan: Plan, host: Host, parent: str) -> list[str]:
    targets = cast(Mapping[str, Any], definitions.cell(plan, host)["target"])
    target = targets[definitions.target_name(plan, "backend-info")]
    command = ["docker", "buildx", "build", "--progress", "plain", "--file", "recipe/Dockerfile"]
    command += ["--target", "figures", "--output", "type=local,dest=figures"]
    command += ["--cgroup-parent", parent] if parent else []
    for name, place in target["contexts"].items():
        command += ["--build-context", f"{name}={place}"]
    for name, value in target["args"].items():
        command += ["--build-arg", name if value is None else f"{name}={value}"]
    for secret in target["secret"]:
        command += ["--secret", secret]
    return [*command, target["context"]]


def read(figures: Path, log: str = "") -> Compile:
    """Return the compile whose steps left their output in `figures`, a folder for each tree."""
    trees = sorted(figures.iterdir())
    spent = [cpu((tree / "times").read_text()) for tree in trees]
    return Compile(
        covered(map(_ran, trees)),
        sum(after - before for before, after in spent),
        sum(before for before, _ in spent),
        tuple(job for tree in trees for job in jobs((tree / "slots.tsv").read_text())),
        tuple(outcome for tree in trees for outcome in outcomes((tree / "ccache.statslog").read_text())),
        log,
        figures,
    )


def _ran(tree: Path) -> tuple[float, float]:
    """Return start and end of a tree's ninja, in seconds since 1970."""
    start = int((tree / "started").read_text()) / 1000
    units = ninja.units((tree / "ninja_log").read_text())
    return start, start + max((unit.end for unit in units), default=0.0)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union: a tree waits for its packages, perhaps until the other is done."""
    total, until = 0.0, 0.0
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def cpu(times: str) -> tuple[float, float]:
    """Return the CPU seconds before and after a tree's ninja, from two outputs of `times` (POSIX, sh)."""
    lines = [sum(60 * int(m) + float(s) for m, s in _TIMES.findall(line)) for line in times.splitlines()]
    return lines[0] + lines[1], lines[2] + lines[3]


def jobs(log: str) -> Iterator[Job]:
    """Parse the log of `steps/slot.py`; without what is not in the build's folder, as the storage's probe."""
    for line in log.splitlines():
        start, end, slot, output, seconds, memory = line.split("\t")
        if not Path(output).is_absolute():
            yield Job(int(start) / 1000, int(end) / 1000, output, float(seconds), int(memory), int(slot))


# The type of such a log on a command line.
LOG = files.holding("a log of slots", lambda file: list(jobs(file.read_text())))


def is_device_link(output: str) -> bool:
    """Return whether nvcc links device code into it, which makes an object too."""
    return output.endswith(_DEVICE_LINK)


def is_compiled(output: str) -> bool:
    """Return whether a compiler makes it of a source."""
    return output.endswith(_OBJECT) and not is_device_link(output)


def outcomes(log: str) -> Iterator[tuple[str, bool]]:
    """Yield source and whether it was a hit, from ccache's statistics log (ccache(1), stats_log)."""
    for block in log.split("# ")[1:]:
        source, *counters = block.splitlines()
        if hit := {"direct_cache_hit", "preprocessed_cache_hit", "cache_miss"}.intersection(counters):
            yield source, hit != {"cache_miss"}

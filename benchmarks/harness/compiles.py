"""Compiles of a cell, its trees as a build makes them, on machines whose caches are empty at first."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.harness.stage import Stage
from ftbuild.build import bake, base, context
from ftbuild.engine import daemon
from ftbuild.errors import BuildError
from ftbuild.host import shell
from ftbuild.host.paths import ca_bundle, cache_folder
from ftbuild.nightly import ninja
from ftbuild.plan import STEPS, Plan
from ftbuild.text.reporter import to_stderr

# One target for the figures of all trees, so that they are compiled beside each other.
_FIGURES = "\n\nFROM scratch AS figures\n{}"
_COPY = "COPY --from={tree} /out/info/ /{tree}/\n"
_TIMES = re.compile(r"(\d+)m([\d.]+)s")


@dataclass(frozen=True)
class Job:
    """A unit that a compiler worked on: seconds since 1970, CPU seconds, bytes of its largest process."""

    start: float
    end: float
    output: str
    cpu: float
    memory: int

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self.end - self.start


@dataclass(frozen=True)
class Compile:
    """What a compile took, in seconds: `wall` while a tree's ninja ran, `cpu` of that, `configure` before it.

    `sources` are those that went through ccache, with whether it had the object; `figures` is the folder of
    what the steps left behind, by tree, until the machine compiles again.
    """

    wall: float
    cpu: float
    configure: float
    jobs: tuple[Job, ...]
    sources: tuple[tuple[str, bool], ...]
    log: str
    figures: Path

    def hits(self, *endings: str, of: Compile | None = None) -> tuple[int, int]:
        """How many sources with these endings ccache had, of how many; of those alone that `of` has too."""
        known = {source for source, _ in (of or self).sources}
        found = [hit for source, hit in self.sources if source.endswith(endings) and source in known]
        return sum(found), len(found)

    def seconds(self) -> dict[str, float]:
        """CPU seconds of the units that were compiled, by output."""
        return {job.output: job.cpu for job in self.jobs}

    def as_dict(self) -> dict[str, Any]:
        """For a record."""
        hits, sources = self.hits("")
        seconds = {"wall": self.wall, "cpu": self.cpu, "configure": self.configure}
        return {**seconds, "compiled": len(self.jobs), "hits": hits, "of": sources}


@dataclass(frozen=True)
class Machine:
    """A stand-in for a machine: caches of its own in the engine's BuildKit, and slots of its own."""

    stage: Stage
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __post_init__(self) -> None:
        self.stage.at_end.callback(self._forget)

    def compile(
        self,
        plan: Plan,
        *,
        edited: Mapping[str, str] | None = None,
        parent: str = "",
        script: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> Compile:
        """Compile a cell; BuildError tells why it failed.

        `edited` adds text to the end of sources, by their path. `parent` is the cgroup that the steps run
        below. `script` replaces `steps/compile.sh`. `settings` are added to those of the machine,
        as bake.Host.lines has them. What was edited stays so.
        """
        folder = plan.folder(self.stage.work / self.name)
        host = bake.Host(self.stage.jobs, ca_bundle(None), progress="plain")
        base.ensure(daemon.connect(), plan, host, self.stage.work, report=to_stderr)
        online = bake.REMOTE_STORAGE in (settings or {})
        context.stage(
            self.stage.load(), plan, cache_folder(), folder, online=online, report=lambda line: None
        )
        bake.write(bake.Job(folder, bake.cell_definition(plan, host)), host)
        with (folder / "host.env").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in (settings or {}).items())
        dockerfile = folder / "recipe" / "Dockerfile"
        recipe = _own_caches(dockerfile.read_text(), self.name)
        if script:
            (dockerfile.parent / STEPS / "compile.sh").write_text(script)
        copies = "".join(_COPY.format(tree=tree) for tree in self.stage.trees)
        dockerfile.write_text(recipe + _FIGURES.format(copies))
        for path, text in (edited or {}).items():
            with (folder / "sources" / path).open("a") as file:
                file.write(text)
        done = shell.run(_command(plan, host, parent), cwd=folder, check=False)
        if done.code:
            raise BuildError("\n".join(bake.failing_lines(done.stderr)), where=str(folder))
        return _read(folder / "figures", done.stderr)

    def _forget(self) -> None:
        """Take its caches out of BuildKit."""
        used = shell.run(["docker", "buildx", "du", "--verbose", "--filter", "type=exec.cachemount"]).stdout
        for record in used.split("\n\n"):
            if f'-{self.name}"' in record and (found := re.search(r"^ID:\s+(\S+)", record, re.M)):
                shell.run(["docker", "builder", "prune", "--force", "--all", "--filter", f"id={found[1]}"])


@functools.cache
def cold(stage: Stage) -> tuple[Machine, Compile]:
    """A machine and its first compile, which all benchmarks of a run share, since it takes longest."""
    machine = Machine(stage)
    to_stderr("a machine with empty caches")
    return machine, machine.compile(stage.plan())


def _own_caches(dockerfile: str, name: str) -> str:
    """The recipe with mounts of other names; the variable makes BuildKit, which ignores names, run the steps.

    Each time, since what a machine compiles again is what a benchmark asks.
    """
    for mount in ("ccache", "slots"):
        dockerfile = dockerfile.replace(f"id=ftbuild-{mount},", f"id=ftbuild-{mount}-{name},")
    return dockerfile.replace(" /steps/compile.sh ", f" COMPILE={uuid.uuid4().hex} /steps/compile.sh ")


def _command(plan: Plan, host: bake.Host, parent: str) -> list[str]:
    targets = cast(Mapping[str, Any], bake.cell_definition(plan, host)["target"])
    target = targets[bake.target_name(plan, "backend-info")]
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


def _read(figures: Path, log: str) -> Compile:
    trees = sorted(figures.iterdir())
    spent = [cpu((tree / "times").read_text()) for tree in trees]
    return Compile(
        covered(map(_ran, trees)),
        sum(after - before for before, after in spent),
        sum(before for before, _ in spent),
        tuple(job for tree in trees for job in jobs((tree / "slots.tsv").read_text())),
        tuple(found for tree in trees for found in outcomes((tree / "ccache.statslog").read_text())),
        log,
        figures,
    )


def _ran(tree: Path) -> tuple[float, float]:
    """Start and end of a tree's ninja, in seconds since 1970."""
    start = int((tree / "started").read_text()) / 1000
    units = ninja.units((tree / "ninja_log").read_text())
    return start, start + max((unit.end for unit in units), default=0.0)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """How long at least one of them lasts: a tree waits for its packages, maybe until the other is done."""
    total, until = 0.0, 0.0
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def cpu(times: str) -> tuple[float, float]:
    """CPU seconds of a tree's step before and after its ninja: twice two lines of `times` (POSIX, sh)."""
    lines = [sum(60 * int(m) + float(s) for m, s in _TIMES.findall(line)) for line in times.splitlines()]
    return lines[0] + lines[1], lines[2] + lines[3]


def jobs(log: str) -> Iterator[Job]:
    """Parse the log of `steps/slot.py`."""
    for line in log.splitlines():
        start, end, _, output, seconds, memory = line.split("\t")
        yield Job(int(start) / 1000, int(end) / 1000, output, float(seconds), int(memory))


def outcomes(log: str) -> Iterator[tuple[str, bool]]:
    """Source and whether ccache had its object, from ccache's statistics log (ccache(1), stats_log)."""
    for block in log.split("# ")[1:]:
        source, *counters = block.splitlines()
        if hit := {"direct_cache_hit", "preprocessed_cache_hit", "cache_miss"}.intersection(counters):
            yield source, hit != {"cache_miss"}

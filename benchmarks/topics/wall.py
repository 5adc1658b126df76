"""Wall time of a cold compile against its limit: the longest unit, or all CPU seconds divided by the jobs."""

from __future__ import annotations

from benchmarks.harness import compiles
from benchmarks.harness.compiles import Compile
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.stage import Stage
from ftbuild.engine import daemon
from ftbuild.errors import HostError

NAME = "wall"
RATIO = 1.05


def needs(stage: Stage) -> str | None:
    """An engine."""
    try:
        daemon.connect()
    except HostError as missing:
        return missing.what
    return None


def run(stage: Stage) -> Result:
    """One cell, from empty caches."""
    _, cold = compiles.cold(stage)
    longest = max(cold.jobs, key=lambda job: job.seconds)
    data = {
        **cold.as_dict(),
        "longest": {"output": longest.output, "seconds": longest.seconds},
        "busy": sum(job.seconds for job in cold.jobs) / stage.jobs / cold.wall,
    }
    return stage.result(NAME, figures(cold, stage), data)


def figures(cold: Compile, stage: Stage) -> list[Figure]:
    """The goal is for the real sources: the sample's compile takes seconds, as configuring does."""
    bound = limit(cold, stage.jobs)
    how = f"measured, {len(cold.jobs)} units; CPU seconds of compiling and linking"
    what = f"{stage.jobs} jobs: wall ({cold.wall:.0f} s) / limit ({bound:.0f} s)"
    return [Figure(Topic.WALL, what, cold.wall / bound, "", RATIO if stage.real else None, how)]


def limit(cold: Compile, jobs: int) -> float:
    """No compile is shorter, in seconds."""
    return max(max(job.seconds for job in cold.jobs), cold.cpu / jobs)

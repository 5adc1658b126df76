"""Wall time of a cold compile against its limit: the longest unit, or all CPU seconds divided by the jobs."""

from __future__ import annotations

from benchmarks.harness import compiles
from benchmarks.harness.compiles import Compile
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace
from ftbuild.engine import daemon
from ftbuild.errors import HostError

NAME = "wall"
RATIO = 1.05


def needs(workspace: Workspace) -> str | None:
    """Require an engine."""
    try:
        daemon.connect()
    except HostError as missing:
        return missing.what
    return None


def run(workspace: Workspace) -> Result:
    """Compile one cell from empty caches."""
    _, cold = compiles.cold(workspace)
    longest = max(cold.jobs, key=lambda job: job.seconds)
    data = {
        **cold.as_dict(),
        "longest": {"output": longest.output, "seconds": longest.seconds},
        "busy": sum(job.seconds for job in cold.jobs) / workspace.jobs / cold.wall,
    }
    return workspace.result(NAME, figures(cold, workspace), data)


def figures(cold: Compile, workspace: Workspace) -> list[Figure]:
    """Return the ratio; its goal is for the real sources: the sample compiles within seconds."""
    bound = limit(cold, workspace.jobs)
    how = f"measured, {len(cold.jobs)} units; CPU seconds of compiling and linking"
    what = f"{workspace.jobs} jobs: wall ({cold.wall:.0f} s) / limit ({bound:.0f} s)"
    return [Figure(Topic.WALL, what, cold.wall / bound, "", RATIO if workspace.real else None, how)]


def limit(cold: Compile, jobs: int) -> float:
    """Return the lower bound of any compile, in seconds."""
    return max(max(job.seconds for job in cold.jobs), cold.cpu / jobs)

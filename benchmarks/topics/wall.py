"""Wall time of a cold compile against its limit, as benchmarks/harness/wall.py defines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.harness import compiles, requirements, wall
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.wall import Compilers
from benchmarks.harness.workspace import Workspace, measured

NAME = "wall"
# 2: the compilers' CPU seconds alone are the limit, without links, ninja and ccache.
DEFINITION = 2


def needs(workspace: Workspace) -> str | None:
    """Require an engine."""
    return requirements.engine()


def run(workspace: Workspace) -> Result:
    """Compile one cell from empty caches."""
    _, cold = compiles.cold(workspace)
    data = {**cold.as_dict(), "jobs": workspace.jobs}
    cells = [measured(workspace.plan())]
    return workspace.result(NAME, figures(data, workspace.stack), data, cells=cells, definition=DEFINITION)


def figures(data: Mapping[str, Any], stack: str) -> list[Figure]:
    """Return the ratio; its goal is for the real sources: the sample compiles within seconds.

    From a record that lacks the compilers' CPU seconds no limit follows: it gives the wall time alone.
    """
    how = f"measured, {data['compiled']} units"
    try:
        compilers = Compilers.read(data)
    except KeyError:
        how += "; no limit, as the record lacks the CPU seconds of the compilers alone"
        return [Figure(Topic.WALL, "wall time of a compile from empty caches", data["wall"], "s", None, how)]
    goal = wall.GOAL if stack == "real" else None
    return [wall.figure(f"{data['jobs']} jobs", data["wall"], compilers, data["jobs"], how, goal)]


def recomputed(result: Result) -> Result:
    """Return the record with the figures that follow from its data today."""
    return replace(result, figures=tuple(figures(result.data, result.stack)), definition=DEFINITION)

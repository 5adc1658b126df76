"""Wall time by replay: measured unit times, other numbers of jobs, ninja's order and the heaviest first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.harness.chart import Lines
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace
from benchmarks.tools import replay, unit_times
from benchmarks.tools.replay import Order, Tree
from ftbuild.build import compile_order

NAME = "schedule"
JOBS = (1, 2, 4, 8, 16, 32, 64, 128)
WITH_GOAL = (2, 16, 64)
RATIO = 1.05
PLAIN, BUILT = "ninja's order", "the build's order"
ORDERS: Mapping[str, Order] = {
    PLAIN: replay.as_begun,
    BUILT: replay.first(compile_order.SOURCES.split()),
    "all by weight": replay.heaviest_first,
}
LIMIT = "limit"
_CELL = re.compile(r"[\d.]+-sm\d+")
Walls = Mapping[str, Mapping[int, float]]


def needs(workspace: Workspace) -> str | None:
    """Require unit times, which exist for the real sources only."""
    return None if cells() else f"no unit times of a cell in {unit_times.FOLDER}"


def run(workspace: Workspace) -> Result:
    """Replay every cell with stored times, which are those of the real sources in any case."""
    walls = {name: replayed(forest(name)) for name in cells()}
    found = [figure for name, of in walls.items() for figure in figures(name, of, unit_times.about(name))]
    units = {name: longest(forest(name)) for name in walls}
    data = {"walls": walls, "longest": units}
    return replace(workspace, real=True).result(NAME, found, data, charts(walls))


def cells() -> list[str]:
    """Return the cells with stored times, without those of upstream's recipe."""
    return [name for name in unit_times.names() if _CELL.match(name)]


def forest(name: str) -> list[Tree]:
    """Return both trees of a cell as tasks."""
    return [replay.tasks(units) for units in unit_times.read(name).values()]


def replayed(trees: Sequence[Tree]) -> Walls:
    """Return order -> jobs -> seconds, and the limit."""
    walls = {name: {jobs: replay.wall(trees, jobs, order) for jobs in JOBS} for name, order in ORDERS.items()}
    return {LIMIT: {jobs: replay.limit(trees, jobs) for jobs in JOBS}, **walls}


def figures(name: str, walls: Walls, about: str) -> list[Figure]:
    """Return wall time against the limit. The goal is for the build's order."""
    how = f"simulated: list schedule of unit times, {about}"
    return [
        Figure(
            Topic.WALL,
            f"{name}, {jobs} jobs, {order}: wall ({of[jobs]:.0f} s) / limit ({walls[LIMIT][jobs]:.0f} s)",
            of[jobs] / walls[LIMIT][jobs],
            "",
            RATIO if order == BUILT else None,
            how,
        )
        for jobs in WITH_GOAL
        for order, of in walls.items()
        if order in (PLAIN, BUILT)
    ]


def longest(trees: Sequence[Tree], count: int = 12) -> list[tuple[str, float]]:
    """Return the units with the longest times, in seconds."""
    every = sorted((task for tree in trees for task in tree), key=lambda task: -task.seconds)
    return [(task.name, task.seconds) for task in every[:count]]


def charts(walls: Mapping[str, Walls]) -> list[Lines]:
    """Return the charts of each cell's orders, absolute and relative to the limit."""
    return [drawn for name, of in walls.items() for drawn in (chart(name, of), distance(name, of))]


def distance(name: str, walls: Walls) -> Lines:
    """Return the chart of wall time relative to the limit, against jobs."""
    series = {
        order: tuple((float(jobs), seconds / walls[LIMIT][jobs]) for jobs, seconds in of.items())
        for order, of in walls.items()
    }
    title = f"Compiling {name}: wall time / limit against jobs, simulated"
    return Lines(f"distance-{name}", title, "jobs", "wall time / limit", series, across_by_powers=True)


def chart(name: str, walls: Walls) -> Lines:
    """Return the chart of wall time against jobs."""
    series = {order: tuple((float(j), seconds) for j, seconds in of.items()) for order, of in walls.items()}
    title = f"Compiling {name}: wall time against jobs, simulated"
    return Lines(
        f"schedule-{name}", title, "jobs", "seconds", series, across_by_powers=True, up_by_powers=True
    )

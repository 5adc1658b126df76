"""Wall time of a compile with stored unit times: as it was measured, and by replay for other numbers of jobs.

The replay is checked: it is run with the jobs of the measured compile, and the part of the measured time that
comes out there is what all replays are divided by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness import wall
from benchmarks.harness.chart import Lines
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.origin import Measured
from benchmarks.harness.wall import Compilers
from benchmarks.harness.workspace import Workspace
from benchmarks.tools import replay, unit_times
from benchmarks.tools.replay import Order, Tree
from benchmarks.tools.unit_times import Times
from ftbuild.build import compile_order

NAME = "schedule"
# 2: the limit of benchmarks/harness/wall.py; the measured compile beside the replays, which it corrects.
DEFINITION = 2
JOBS = (1, 2, 4, 8, 16, 32, 64, 128)
SHOWN = (2, 16, 64)
PLAIN, BUILT = "ninja's order", "the build's order"
ORDERS: Mapping[str, Order] = {
    PLAIN: replay.as_begun,
    BUILT: replay.first(compile_order.SOURCES.split()),
    "all by weight": replay.heaviest_first,
}
LIMIT, MEASURED = "limit", "measured"


@dataclass(frozen=True)
class Replays:
    """Replays of a measured compile: seconds by order and jobs, as they come out of the replay.

    `same` are those of the replay with the jobs of the measured compile.
    """

    times: Times
    compilers: Compilers
    walls: Mapping[str, Mapping[int, float]]
    same: float

    @property
    def checked(self) -> float:
        """Return what the replay with the measured compile's jobs is of its wall time."""
        return self.same / self.times.wall

    def corrected(self, order: str, jobs: int) -> float:
        """Return the seconds of a replay, by which the measured compile would have come out right."""
        return self.walls[order][jobs] / self.checked

    def limits(self) -> dict[int, float]:
        """Return the limit for each number of jobs."""
        return {jobs: self.compilers.limit(jobs) for jobs in JOBS}


def needs(workspace: Workspace) -> str | None:
    """Require unit times, which exist for the real sources only."""
    return None if unit_times.stored() else f"no unit times in {unit_times.FOLDER}"


def run(workspace: Workspace) -> Result:
    """Replay every compile with stored times, which are those of the real sources in any case."""
    replays = [replayed(times) for times in unit_times.stored()]
    cells = dict.fromkeys((of.times.cell, of.times.key) for of in replays)
    return replace(workspace, real=True).result(
        NAME,
        every(replays),
        data(replays),
        charts(replays),
        cells=[Measured(*cell) for cell in cells],
        definition=DEFINITION,
    )


def recomputed(result: Result) -> Result:
    """Return the record with what follows from the stored unit times today; they are its raw data."""
    replays = [replayed(times) for times in unit_times.stored()]
    return replace(
        result,
        figures=tuple(every(replays)),
        data=data(replays),
        charts=tuple(charts(replays)),
        definition=DEFINITION,
    )


def replayed(times: Times) -> Replays:
    """Return the replays in each order with each number of jobs."""
    trees = forest(times)
    walls = {name: {jobs: replay.wall(trees, jobs, order) for jobs in JOBS} for name, order in ORDERS.items()}
    same = replay.wall(trees, times.jobs, ORDERS[BUILT])
    return Replays(times, Compilers.of(times.compilers), walls, same)


def forest(times: Times) -> list[Tree]:
    """Return the trees of a cell as tasks."""
    return [replay.tasks(units) for units in times.trees.values()]


def every(every_replay: Sequence[Replays]) -> list[Figure]:
    """Return the figures of all compiles."""
    return [replace(figure, of=replays.times.cell) for replays in every_replay for figure in figures(replays)]


def figures(replays: Replays) -> Iterator[Figure]:
    """Yield wall time against the limit: as measured, the check of the replay, and replays with more jobs.

    The goal is for the build's order.
    """
    times, jobs = replays.times, replays.times.jobs
    how = f"measured: {times.about}"
    yield wall.figure(f"{jobs} jobs", times.wall, replays.compilers, jobs, how, wall.GOAL)
    what = f"{jobs} jobs: wall of the replay ({replays.same:.0f} s) / measured ({times.wall:.0f} s)"
    how = f"simulated: list schedule of the unit times of the measured compile; {times.about}"
    yield Figure(Topic.WALL, what, replays.checked, "", None, how)
    note = f"/ {replays.checked:.3f}, which it is of the measured wall time with {jobs} jobs"
    for shown in (count for count in SHOWN if count > jobs):
        for order in (PLAIN, BUILT):
            how = f"simulated: list schedule of unit times {note}; {times.about}"
            goal, seconds = wall.GOAL if order == BUILT else None, replays.corrected(order, shown)
            yield wall.figure(f"{shown} jobs, {order}", seconds, replays.compilers, shown, how, goal)


def data(replays: Sequence[Replays]) -> dict[str, Any]:
    """Return the replays as they came out, the measured compile, and the longest units, as JSON has them."""
    return {
        of.times.name: {
            "measured": {"jobs": of.times.jobs, "wall": of.times.wall, "replayed": of.same},
            "compilers": of.compilers.total,
            "longest compiler": of.compilers.longest,
            "replayed": {
                order: {str(jobs): seconds for jobs, seconds in walls.items()}
                for order, walls in of.walls.items()
            },
            "longest": longest(forest(of.times)),
        }
        for of in replays
    }


def longest(trees: Sequence[Tree], count: int = 12) -> list[list[str | float]]:
    """Return the units with the longest times, in seconds."""
    units = sorted((task for tree in trees for task in tree), key=lambda task: -task.seconds)
    return [[task.name, task.seconds] for task in units[:count]]


def charts(replays: Sequence[Replays]) -> list[Lines]:
    """Return the charts of each compile's orders, absolute and relative to the limit."""
    return [drawn for of in replays for drawn in (chart(of), distance(of))]


def curves(replay: Replays) -> dict[str, dict[int, float]]:
    """Return the seconds of each curve by jobs: the limit, the corrected replays, and the measured point."""
    replays = {order: {jobs: replay.corrected(order, jobs) for jobs in JOBS} for order in ORDERS}
    return {LIMIT: replay.limits(), **replays, MEASURED: {replay.times.jobs: replay.times.wall}}


def distance(replays: Replays) -> Lines:
    """Return the chart of wall time relative to the limit, against jobs."""
    series = {
        curve: tuple(
            (float(jobs), seconds / replays.compilers.limit(jobs)) for jobs, seconds in points.items()
        )
        for curve, points in curves(replays).items()
    }
    return Lines(
        f"distance-{replays.times.name}",
        f"{_title(replays)}: wall time / limit",
        "jobs",
        "wall time / limit",
        series,
        across_by_powers=True,
    )


def chart(replays: Replays) -> Lines:
    """Return the chart of wall time against jobs."""
    series = {
        curve: tuple((float(jobs), seconds) for jobs, seconds in points.items())
        for curve, points in curves(replays).items()
    }
    return Lines(
        f"schedule-{replays.times.name}",
        f"{_title(replays)}: wall time",
        "jobs",
        "seconds",
        series,
        across_by_powers=True,
        up_by_powers=True,
    )


def _title(replays: Replays) -> str:
    times = replays.times
    return f"Compiling {times.cell}, measured with {times.jobs} jobs, replayed and corrected"

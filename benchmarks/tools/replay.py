"""Replay of compiles with measured times, for other numbers of jobs and other orders.

A list schedule, as in a build: each tree's ninja starts the first unit in its order whose inputs exist, and
keeps at most `jobs` running (ninja's manual, `-j`); a compile also waits for one of as many slots, which all
trees share and which are given in order of arrival (dockerfiles/steps/slot.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from benchmarks.harness.compiles import is_compiled, is_device_link
from ftbuild.build import compile_order
from ftbuild.nightly.record import Unit

_ARCHIVE = ".a"


@dataclass(frozen=True)
class Task:
    """A unit to run: its seconds, the indices of its predecessors, and whether it takes a slot."""

    name: str
    seconds: float
    after: tuple[int, ...] = ()
    compiles: bool = True


Tree = Sequence[Task]
Order = Callable[[Tree], Sequence[int]]


def tasks(units: Sequence[Unit]) -> list[Task]:
    """Return the units of a ninja log as tasks, in their order.

    The log has no inputs. An archive waits for the objects of its target, which CMake puts into a folder of
    that name, and so does the device link in it; any other link waits for all units that had ended when it
    started.
    """
    return [
        Task(unit.output, unit.end - unit.start, tuple(_inputs(unit, units)), is_compiled(unit.output))
        for unit in units
    ]


def as_begun(tree: Tree) -> Sequence[int]:
    """Return ninja's own order, that of the build statements."""
    return range(len(tree))


def heaviest_first(tree: Tree) -> Sequence[int]:
    """Return the order by time, longest first; links, which take no slot, come before."""
    return sorted(range(len(tree)), key=lambda i: (tree[i].compiles, -tree[i].seconds))


def first(names: Sequence[str]) -> Order:
    """Return an order that starts with these sources, as dockerfiles/steps/heaviest.py does."""
    ranks = {name: rank for rank, name in enumerate(names)}

    def order(tree: Tree) -> Sequence[int]:
        def place(index: int) -> tuple[int, int]:
            task = tree[index]
            source = compile_order.source(task.name)
            return (ranks.get(source, len(ranks)) if task.compiles else len(ranks)), index

        return sorted(range(len(tree)), key=place)

    return order


def wall(trees: Sequence[Tree], jobs: int, order: Order = as_begun) -> float:
    """Return the seconds from the first unit's start to the last one's end."""
    ninjas = [_Ninja(tree, order(tree), jobs) for tree in trees]
    waiting: deque[_Start] = deque()
    running: list[tuple[float, int, _Start]] = []
    free, now, count = jobs, 0.0, 0
    while True:
        started = list(_in_turn(ninjas))
        waiting.extend(start for start in started if start.task.compiles)
        begun = [start for start in started if not start.task.compiles]
        while free and waiting:
            begun.append(waiting.popleft())
            free -= 1
        for start in begun:
            count += 1
            heapq.heappush(running, (now + start.task.seconds, count, start))
        if not running:
            return now
        now, _, ended = heapq.heappop(running)
        ended.ninja.end(ended.index)
        free += ended.task.compiles


class _Ninja:
    """One tree's ninja: its ready units in order, and the number of its free jobs."""

    def __init__(self, tree: Tree, order: Sequence[int], jobs: int) -> None:
        self.tree = tree
        self.free = jobs
        self.rank = {index: place for place, index in enumerate(order)}
        self.missing = [len(task.after) for task in tree]
        self.followers: dict[int, list[int]] = {}
        for index, task in enumerate(tree):
            for before in task.after:
                self.followers.setdefault(before, []).append(index)
        self.ready = [(self.rank[i], i) for i, left in enumerate(self.missing) if not left]
        heapq.heapify(self.ready)

    def start(self) -> _Start | None:
        """Start the next unit if one is ready and a job is free."""
        if not (self.free and self.ready):
            return None
        self.free -= 1
        _, index = heapq.heappop(self.ready)
        return _Start(self, index)

    def end(self, index: int) -> None:
        """End a unit, which may make others ready."""
        self.free += 1
        for follower in self.followers.get(index, ()):
            self.missing[follower] -= 1
            if not self.missing[follower]:
                heapq.heappush(self.ready, (self.rank[follower], follower))


@dataclass(frozen=True)
class _Start:
    ninja: _Ninja
    index: int

    @property
    def task(self) -> Task:
        return self.ninja.tree[self.index]


def _in_turn(ninjas: Sequence[_Ninja]) -> Iterator[_Start]:
    """Yield all units that can start now, the trees taking turns, since they ask at the same time."""
    while started := [start for ninja in ninjas if (start := ninja.start())]:
        yield from started


def _inputs(unit: Unit, units: Sequence[Unit]) -> Iterator[int]:
    if is_compiled(unit.output):
        return
    own = [i for i, other in enumerate(units) if _target(unit) in PurePath(other.output).parts]
    if is_device_link(unit.output):
        own = [i for i in own if is_compiled(units[i].output)]
    elif not unit.output.endswith(_ARCHIVE):
        own = []
    yield from own or (i for i, other in enumerate(units) if other.end <= unit.start)


def _target(unit: Unit) -> str:
    """Return the name of the CMake folder with the objects of a link."""
    path = PurePath(unit.output)
    return path.parent.name if is_device_link(unit.output) else f"{path.stem.removeprefix('lib')}.dir"

"""How much of a machine a night uses, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftbuild import cmake
from ftbuild.nightly.record import PastRun
from ftbuild.plan import Plan

# A cell compiles for a part of its time only: two keep the cores busy. Beyond this many jobs a cell waits for
# its longest translation unit, so more cells run beside each other.
JOBS_PER_CELL = 8
FEWEST_CELLS = 2


@dataclass(frozen=True)
class Budget:
    """Compile jobs of all cells together, and how many cells are worked on at a time."""

    jobs: int
    cells: int


def budget(cores: int, memory_bytes: int, jobs: int | None = None, cells: int | None = None) -> Budget:
    """The budget of a machine; `jobs` and `cells` are the user's own wishes."""
    count = jobs or cmake.jobs(cores, memory_bytes)
    return Budget(count, cells or max(FEWEST_CELLS, count // JOBS_PER_CELL))


def longest_first(plans: Iterable[Plan], past: Sequence[PastRun]) -> list[Plan]:
    """The plans by how long they took the last time; one never seen before counts as long as its SMs weigh.

    So the night does not end with one long cell alone (longest processing time first).
    """
    seconds: dict[str, float] = {}
    for night in past:
        seconds |= night.cell_seconds
    per_sm = max(seconds.values(), default=1.0)
    return sorted(plans, key=lambda p: seconds.get(p.cell.id, per_sm * len(p.cell.sms)), reverse=True)


def fewer(jobs: int) -> int | None:
    """The number of jobs to try after a process ran out of memory; None when there is no smaller one."""
    return jobs // 2 or None if jobs > 1 else None

"""The budget of a nightly run: compile jobs, cells at a time, and their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from ftbuild import cmake
from ftbuild.nightly.record import PastRun
from ftbuild.plan import Plan

# A cell compiles only part of the time: two keep the cores busy. With more jobs than this, a cell waits for
# its longest translation unit, so more cells run in parallel.
JOBS_PER_CELL = 8
FEWEST_CELLS = 2


@dataclass(frozen=True)
class Budget:
    """Compile jobs of all cells on a builder together, and the number of cells at a time."""

    jobs: int
    cells: int


def for_machine(cores: int, memory_bytes: int, jobs: int | None = None, cells: int | None = None) -> Budget:
    """Return the budget for a machine; `jobs` and `cells` override what follows from its cores and memory."""
    return for_jobs(jobs or cmake.jobs(cores, memory_bytes), cells)


def for_jobs(jobs: int, cells: int | None = None) -> Budget:
    """Return the budget for a number of jobs."""
    return Budget(jobs, cells or max(FEWEST_CELLS, jobs // JOBS_PER_CELL))


def order_of_start(plans: Iterable[Plan], past: Sequence[PastRun]) -> list[Plan]:
    """Return the plans, longest last build first, but one of each release and base before all others.

    Two cells of a release that begin together both compile what they have in common; one that begins later
    finds it in the compiler cache: on the base `open` another SM of 22.03 takes the compilers two thirds of
    the first's time (benchmarks/log.md).
    """
    longest = _longest_first(plans, past)
    ahead: dict[tuple[str, str], Plan] = {}
    for plan in longest:
        ahead.setdefault((plan.cell.triton, plan.cell.base), plan)
    begins = {plan.cell.id for plan in ahead.values()}
    return [*ahead.values(), *(plan for plan in longest if plan.cell.id not in begins)]


def _longest_first(plans: Iterable[Plan], past: Sequence[PastRun]) -> list[Plan]:
    """Return the plans, longest last build first; a cell without history is estimated by its number of SMs.

    Longest processing time first: a run does not end with one long cell alone. Of cells that seem to take as
    long as each other the newest release comes first, since FasterTransformer only grew: on the base `open`
    22.12 takes the compilers 2.7 times as long as 22.03 (benchmarks/log.md).
    """
    seconds: dict[str, float] = {}
    for run in past:
        seconds |= run.cell_seconds
    per_sm = max(seconds.values(), default=1.0)

    def length(plan: Plan) -> tuple[float, Version]:
        return seconds.get(plan.cell.id, per_sm * len(plan.cell.sms)), Version(plan.cell.triton)

    return sorted(plans, key=length, reverse=True)


def fewer(jobs: int) -> int | None:
    """Return the number of jobs for a retry after a process ran out of memory; None if it cannot shrink."""
    return jobs // 2 or None if jobs > 1 else None

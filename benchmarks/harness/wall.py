"""The limit of a compile's wall time: one definition for measured and simulated rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.figure import Figure, Topic

GOAL = 1.05
# README.md has the same words, by a test.
DEFINITION = (
    "Wall time is from the start of the first compile to the end of the last link. The limit is the CPU "
    "seconds of the compilers alone: all of them divided by the jobs, or those of the longest one if that is "
    "more."
)


@dataclass(frozen=True)
class Compilers:
    """The CPU seconds of a compile's compilers, as the kernel counts them: all together, and the longest one.

    Links, ccache, ninja and the start of each slot are in the wall time but not in these: they count
    against us.
    """

    total: float
    longest: float

    @classmethod
    def of(cls, seconds: Collection[float]) -> Compilers:
        """Return those of units with these CPU seconds."""
        return cls(sum(seconds), max(seconds))

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Compilers:
        """Return what a record holds (`Compile.as_dict`); KeyError for one without them."""
        return cls(data["compilers"], data["longest compiler"])

    def limit(self, jobs: int) -> float:
        """Return the minimum seconds that so many jobs take."""
        return max(self.total / jobs, self.longest)

    def deciding(self, jobs: int) -> str:
        """Return which of the two the limit is."""
        if self.longest > self.total / jobs:
            return "CPU seconds of the longest compiler"
        return f"CPU seconds of all compilers / {jobs}"


def figure(
    what: str, wall: float, compilers: Compilers, jobs: int, how: str, goal: float | None, of: str = ""
) -> Figure:
    """Return wall time against the limit, with both in its name."""
    limit = compilers.limit(jobs)
    name = f"{what}: wall ({wall:.0f} s) / limit ({limit:.0f} s, {compilers.deciding(jobs)})"
    return Figure(Topic.WALL, name, wall / limit, "", goal, how, of=of)

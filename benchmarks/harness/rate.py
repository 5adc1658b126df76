"""Rates that were found several times, with their slowest and their fastest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.figure import Figure


@dataclass(frozen=True)
class Rate:
    """A rate, a ratio of two, or a time: the median with the minimum and the maximum."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Rate:
        """Return that of some values."""
        return cls(statistics.median(values), min(values), max(values))

    def over(self, other: Rate) -> Rate:
        """Return the ratio to another, with the ends that the two can have."""
        return Rate(self.median / other.median, self.least / other.most, self.most / other.least)

    def figure(
        self,
        topic: str,
        what: str,
        unit: str,
        how: str,
        goal: float | None = None,
        *,
        at_most: bool = False,
    ) -> Figure:
        """Return it as a figure, whose goal is a lower limit, or with `at_most` an upper one."""
        return Figure(topic, what, self.median, unit, goal, how, at_most, least=self.least, most=self.most)

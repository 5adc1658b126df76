"""Percentiles of latencies, and their table. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ftbuild.text import tables

PERCENTILES = (50, 90, 99)
_MS = 1000


def percentile(seconds: Sequence[float], percent: int) -> float:
    """Return the smallest measured value that at least `percent` of them do not exceed (nearest rank)."""
    return sorted(seconds)[max(0, math.ceil(len(seconds) * percent / 100) - 1)]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Return count, mean and percentiles, in milliseconds."""
    figures = {f"p{percent}": percentile(seconds, percent) for percent in PERCENTILES}
    figures = {"mean": math.fsum(seconds) / len(seconds), **figures}
    return {"requests": len(seconds), **{name: round(value * _MS, 3) for name, value in figures.items()}}


def table(summaries: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table with one line for each summary."""
    columns = ("mean", *(f"p{percent}" for percent in PERCENTILES))
    rows = [
        (name, str(figures["requests"]), *(f"{figures[column]:.1f}" for column in columns))
        for name, figures in summaries.items()
    ]
    return tables.render(("", "requests", *(f"{column} ms" for column in columns)), rows)

"""Plots as data: bars and lines in the record of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bars:
    """Bars side by side or `stacked`: for each label, a value of every series.

    `name` is the name of the plot's file, `unit` the unit of all values; `goal` is drawn as a line.
    """

    name: str
    title: str
    unit: str
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float, ...]]
    stacked: bool = False
    goal: float | None = None
    kind: str = "bars"


@dataclass(frozen=True)
class Lines:
    """Curves through points (x, y), on linear or logarithmic axes.

    `across` and `up` are the titles of the axes, with their units.
    """

    name: str
    title: str
    across: str
    up: str
    series: Mapping[str, tuple[tuple[float, float], ...]]
    across_by_powers: bool = False
    up_by_powers: bool = False
    kind: str = "lines"


Chart = Bars | Lines
_KINDS: dict[str, type[Chart]] = {"bars": Bars, "lines": Lines}


def read(values: Mapping[str, Any]) -> Chart:
    """Return a chart from its plain data, as written by `dataclasses.asdict` and JSON."""
    series = {name: tuple(map(_frozen, points)) for name, points in values["series"].items()}
    labels = {"labels": tuple(values["labels"])} if "labels" in values else {}
    return _KINDS[values["kind"]](**{**values, **labels, "series": series})


def _frozen(point: Any) -> Any:
    return tuple(point) if isinstance(point, list) else point

"""Plots as data: bars, lines and spans of time in the record of a benchmark."""

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


# Start, length, and what it is: one of the chart's `things`.
Span = tuple[float, float, str]


@dataclass(frozen=True)
class Spans:
    """What ran when: panels one below the other, each with lanes of spans, all to the same scale of time.

    Each panel is drawn whole, up to `until`, and its beginning up to `zoom` below it. `things` are the
    legend, in its order; `across` is the unit of time.
    """

    name: str
    title: str
    across: str
    panels: Mapping[str, Mapping[str, tuple[Span, ...]]]
    things: tuple[str, ...]
    until: float
    zoom: float
    kind: str = "spans"


Chart = Bars | Lines | Spans
_KINDS: dict[str, type[Bars | Lines]] = {"bars": Bars, "lines": Lines}


def read(values: Mapping[str, Any]) -> Chart:
    """Return a chart from its plain data, as written by `dataclasses.asdict` and JSON."""
    if values["kind"] == "spans":
        panels = {
            title: {lane: tuple(map(_frozen, spans)) for lane, spans in lanes.items()}
            for title, lanes in values["panels"].items()
        }
        return Spans(**{**values, "panels": panels, "things": tuple(values["things"])})
    series = {name: tuple(map(_frozen, points)) for name, points in values["series"].items()}
    labels = {"labels": tuple(values["labels"])} if "labels" in values else {}
    return _KINDS[values["kind"]](**{**values, **labels, "series": series})


def _frozen(point: Any) -> Any:
    return tuple(point) if isinstance(point, list) else point

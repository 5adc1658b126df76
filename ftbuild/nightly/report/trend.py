"""The last nights: states, times and sizes of each cell, as squares and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ftbuild.nightly.record import NightlyRun, PastRun, State
from ftbuild.nightly.report import wording

NIGHTS = 21
WIDTH, HEIGHT = 120.0, 28.0
_MARGIN = 4.0
# A line is not drawn steeper than this part of its highest value for its whole height: noise stays flat.
_FLAT = 0.1


@dataclass(frozen=True)
class Square:
    """How one night ended for a cell; `look` is None when the cell was not part of it."""

    night: str
    look: wording.Look | None


@dataclass(frozen=True)
class Spark:
    """A line through the nights that have a value. `change` is against the median of the earlier ones."""

    points: str
    x: float
    y: float
    last: float
    change: float | None


@dataclass(frozen=True)
class Trend:
    """One cell, or with an empty name the night as a whole, over the last nights."""

    cell: str
    squares: tuple[Square, ...]
    seconds: Spark | None
    bytes: Spark | None


def trends(night: NightlyRun) -> tuple[Trend, ...]:
    """The night itself, then every cell that a step was ever run for; nothing without an earlier night."""
    nights = (*sorted(night.past, key=lambda past: past.id), night.summary())[-NIGHTS:]
    if len(nights) < 2:
        return ()
    cells = [c.cell for c in night.cells if any(c.cell in past.cell_seconds for past in nights)]
    whole = tuple(Square(past.id, wording.look(_ended(past))) for past in nights)
    seconds = spark([past.seconds for past in nights])
    return (Trend("", whole, seconds, None), *(_trend(cell, nights) for cell in cells))


def spark(values: Sequence[float | None]) -> Spark | None:
    """The line through `values`, the oldest first; None when there are none."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if not known:
        return None
    low, high = min(v for _, v in known), max(v for _, v in known)
    span = max(high - low, _FLAT * high) or 1.0
    middle = (low + high) / 2
    across = (WIDTH - 2 * _MARGIN) / max(len(values) - 1, 1)
    points = [
        (
            round(_MARGIN + index * across, 1),
            round(HEIGHT / 2 - (value - middle) / span * (HEIGHT - 2 * _MARGIN), 1),
        )
        for index, value in known
    ]
    earlier = [value for _, value in known[:-1]]
    usual = median(earlier) if earlier else 0
    last = known[-1][1]
    return Spark(
        " ".join(f"{x:g},{y:g}" for x, y in points), *points[-1], last, last / usual - 1 if usual else None
    )


def _ended(past: PastRun) -> State:
    return State.FAILED if past.exit_code else State.PASSED


def _trend(cell: str, nights: Sequence[PastRun]) -> Trend:
    return Trend(
        cell,
        tuple(Square(past.id, _look(past.states.get(cell))) for past in nights),
        spark([_seconds(past, cell) for past in nights]),
        # An image that is not on the machine has no size.
        spark([past.cell_bytes.get(cell) or None for past in nights]),
    )


def _seconds(past: PastRun, cell: str) -> float | None:
    """How long the cell took; one that broke off says nothing about that."""
    is_whole = past.states.get(cell) not in (State.FAILED, State.ERROR)
    return past.cell_seconds.get(cell) if is_whole else None


def _look(state: str | None) -> wording.Look | None:
    # A later version may know other states.
    return wording.look(State(state)) if state in set(State) else None

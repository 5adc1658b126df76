"""Trends over the last runs: states, times and sizes of each cell, as squares and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ftbuild.nightly.record import NightlyRun, PastRun, State
from ftbuild.nightly.report import wording

RUNS = 21
WIDTH, HEIGHT = 120.0, 28.0
_MARGIN = 4.0
# The full height spans at least this part of the highest value, so that noise stays flat.
_FLAT = 0.1


@dataclass(frozen=True)
class Square:
    """Outcome of a cell in one run; `look` is None if the cell was not part of it."""

    run: str
    look: wording.Look | None


@dataclass(frozen=True)
class Spark:
    """A line through the runs that have a value. `change` is relative to the median of the earlier ones."""

    points: str
    x: float
    y: float
    last: float
    change: float | None


@dataclass(frozen=True)
class Trend:
    """One cell, or with an empty name the whole run, over the last runs."""

    cell: str
    squares: tuple[Square, ...]
    seconds: Spark | None
    bytes: Spark | None


def trends(run: NightlyRun) -> tuple[Trend, ...]:
    """Return the trend of the run, then of every cell that ever had steps; none without an earlier run."""
    runs = (*sorted(run.past, key=lambda past: past.id), run.summary())[-RUNS:]
    if len(runs) < 2:
        return ()
    cells = [c.cell for c in run.cells if any(c.cell in past.cell_seconds for past in runs)]
    whole = tuple(Square(past.id, wording.look(_ended(past))) for past in runs)
    # A run that built less, as the registry or a selection left it less to do, is no faster one.
    built = set(runs[-1].cell_seconds)
    seconds = spark([past.seconds if set(past.cell_seconds) == built else None for past in runs])
    return (Trend("", whole, seconds, None), *(_trend(cell, runs) for cell in cells))


def spark(values: Sequence[float | None]) -> Spark | None:
    """Return the line through `values`, oldest first; None if there are none."""
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


def _trend(cell: str, runs: Sequence[PastRun]) -> Trend:
    return Trend(
        cell,
        tuple(Square(past.id, _look(past.states.get(cell))) for past in runs),
        spark([_seconds(past, cell) for past in runs]),
        # An image that is not on the machine has no size.
        spark([past.cell_bytes.get(cell) or None for past in runs]),
    )


def _seconds(past: PastRun, cell: str) -> float | None:
    """Return the cell's time, or None if it failed: an aborted build would look like a fast one."""
    is_whole = past.states.get(cell) not in (State.FAILED, State.ERROR)
    return past.cell_seconds.get(cell) if is_whole else None


def _look(state: str | None) -> wording.Look | None:
    # A later version may know other states.
    return wording.look(State(state)) if state in set(State) else None

"""Steps of decoding in a trace: what the GPU did in each, and what it waited for. Pure."""

from __future__ import annotations

import itertools
import re
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# FasterTransformer runs it once a layer in every step (FT v5.3 DecoderSelfAttentionLayer.cc, fusedQKV...).
MARKER = "masked_multihead_attention"
CALL = "call"


@dataclass(frozen=True)
class Row:
    """What the GPU or the host did; `start` and `end` in nanoseconds, `kind` as in trace.c."""

    kind: str
    start: int
    end: int
    place: int
    name: str


@dataclass(frozen=True)
class Step:
    """The median of the steps: nanoseconds, and counts.

    `busy` is when any kernel, copy or fill ran. `gpu` holds the nanoseconds of each by its short name,
    `calls` those of each runtime call of the thread with the most in a step, `counts` how many there were of
    both.
    """

    steps: int
    duration: float
    busy: float
    gpu: Mapping[str, float]
    calls: Mapping[str, float]
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Drawn:
    """One step: start and end in nanoseconds, and what ran in it, even if it began before or ended after."""

    start: int
    end: int
    gpu: Sequence[Row]
    calls: Sequence[Row]


def read(lines: Iterable[str]) -> list[Row]:
    """Return the rows of a trace by their start, without lines that are none, as a last one that was cut."""
    rows = []
    for line in lines:
        parts = line.rstrip("\n").split("\t", 4)
        if len(parts) == 5 and all(map(str.isdecimal, parts[1:4])) and line.endswith("\n"):
            kind, start, end, place, name = parts
            rows.append(Row(kind, int(start), int(end), int(place), name))
    return sorted(rows, key=lambda row: row.start)


def short(name: str) -> str:
    """Return the name of a kernel without its type, its namespaces and its arguments."""
    return re.split(r"[<(]", name.removeprefix("void "))[0].split("::")[-1]


def median_step(rows: Sequence[Row], layers: int, marker: str = MARKER) -> Step | None:
    """Return the median step of decoding; None where the trace has no two steps.

    A step is from the marker's kernel of the first of `layers` layers to that of the next step. Steps of more
    than twice the median hold the end of an answer, and do not count.
    """
    spans = _spans(rows, layers, marker)
    if not spans:
        return None
    done, called = _lanes(rows)
    gpu = [_within(done, *span) for span in spans]
    calls = [_of_one_thread(_within(called, *span)) for span in spans]
    count = len(spans)
    return Step(
        count,
        statistics.median(end - start for start, end in spans),
        statistics.median(map(_busy, gpu)),
        _mean(gpu, count),
        _mean(calls, count),
        _per_step((_name(row) for some in (*gpu, *calls) for row in some), count),
    )


def typical_step(rows: Sequence[Row], layers: int, marker: str = MARKER) -> Drawn | None:
    """Return the step whose length is nearest to the median; None where the trace has no two steps.

    The host runs ahead: what it calls during a step may be for a later one.
    """
    spans = _spans(rows, layers, marker)
    if not spans:
        return None
    usual = statistics.median(end - start for start, end in spans)
    start, end = min(spans, key=lambda span: abs(span[1] - span[0] - usual))
    gpu, calls = ([row for row in some if row.end > start and row.start < end] for some in _lanes(rows))
    return Drawn(start, end, gpu, _of_one_thread(calls))


def _spans(rows: Sequence[Row], layers: int, marker: str) -> list[tuple[int, int]]:
    """Return start and end of each step."""
    marks = [row.start for row in rows if row.kind == "kernel" and marker in row.name][::layers]
    spans = list(itertools.pairwise(marks))
    usual = statistics.median(end - start for start, end in spans) if spans else 0
    return [(start, end) for start, end in spans if end - start <= 2 * usual]


def _lanes(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return what the GPU did, and what was called."""
    return [row for row in rows if row.kind != CALL], [row for row in rows if row.kind == CALL]


def _of_one_thread(calls: Sequence[Row]) -> list[Row]:
    """Return the calls of the thread that made the most: in each start of a server another one decodes."""
    threads = Counter(row.place for row in calls).most_common(1)
    return [row for row in calls if row.place == threads[0][0]]


def _within(rows: Sequence[Row], start: int, end: int) -> Sequence[Row]:
    first = bisect_left(rows, start, key=lambda row: row.start)
    return rows[first : bisect_left(rows, end, key=lambda row: row.start)]


def _busy(rows: Sequence[Row]) -> int:
    """Return the nanoseconds in which any of the rows ran; they are in the order of their start."""
    total, until = 0, 0
    for row in rows:
        total += max(0, row.end - max(row.start, until))
        until = max(until, row.end)
    return total


def _name(row: Row) -> str:
    return short(row.name) if row.kind == "kernel" else row.name.split(",")[0]


def _mean(parts: Iterable[Iterable[Row]], count: int) -> dict[str, float]:
    """Return the nanoseconds per step by name, largest first."""
    total: Counter[str] = Counter()
    for row in itertools.chain.from_iterable(parts):
        total[_name(row)] += row.end - row.start
    return {name: spent / count for name, spent in total.most_common()}


def _per_step(names: Iterable[str], count: int) -> dict[str, float]:
    return {name: number / count for name, number in Counter(names).items()}

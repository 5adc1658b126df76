"""Figures, charts and record of a measurement. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Topic
from benchmarks.topics.inference.job import Found
from benchmarks.topics.inference.measure import FT, Times, equal_tokens, together
from benchmarks.topics.inference.server import Variant

RATE = "tokens/s"


def figures(found: Found) -> Iterator[Figure]:
    """Yield the rates of all sides, their ratios, equal tokens, time to ready, and the variants."""
    for batch in found.job.workload.batches:
        yield from _batch(found, batch)
    for side, batch, equal in _equal(found):
        what = f"batch {batch}: first tokens equal to those of {side}, median of rows"
        how = f"measured, greedy, {found.job.workload.answer} tokens a row"
        yield Figure(Topic.INFERENCE, what, statistics.median(equal), "tokens", None, how)
    ready = [found.first.ready_seconds, *_ready(found).get(found.first.variant, [])]
    how = f"measured, median of {len(ready)} starts, weights in the page cache"
    yield Figure(Topic.INFERENCE, "time to ready", statistics.median(ready), "s", None, how)
    yield from _variants(found)


def charts(found: Found) -> list[Bars]:
    """Return the charts of the sides that answered every batch, and of the variants."""
    sides = {
        name: times for name, times in found.compared.times.items() if name not in found.compared.failures
    }
    drawn = [_chart(found, "inference", found.job.shape.name, sides)]
    if varied := together(found.sessions):
        drawn.append(
            _chart(found, "inference-variants", f"Variants of the server, {found.job.shape.name}", varied)
        )
    return drawn


def data(found: Found) -> dict[str, Any]:
    """Return all times and the settings of the measurement."""
    return {
        **found.where,
        "shape": asdict(found.job.shape),
        "parameters": found.job.shape.parameters,
        "workload": asdict(found.job.workload),
        "variants": {variant.name: _settings(variant) for variant in found.job.variants},
        "first": asdict(found.first),
        "seconds": found.compared.times,
        "failures": found.compared.failures,
        "equal_tokens": {f"{side}, batch {batch}": equal for side, batch, equal in _equal(found)},
        "sessions": [asdict(session) for session in found.sessions],
    }


def _settings(variant: Variant) -> dict[str, str]:
    chosen = {"cpus": variant.cpus, "image": variant.image}
    return {**variant.environment, **{name: value for name, value in chosen.items() if value}}


def rates(times: Times, batch: int, answer: int) -> list[float]:
    """Return tokens per second of every run with `batch` rows of `answer` tokens."""
    return [batch * answer / seconds for seconds in times[batch]]


def _rate(found: Found, times: Times, batch: int) -> float:
    return statistics.median(rates(times, batch, found.job.workload.answer))


def _batch(found: Found, batch: int) -> Iterator[Figure]:
    work, shape = found.job.workload, found.job.shape
    medians: dict[str, float] = {}
    for side, times in found.compared.times.items():
        if batch not in times:
            continue
        taken = rates(times, batch, work.answer)
        medians[side] = statistics.median(taken)
        what = f"{shape.name} of {shape.parameters / 1e9:.2f} billion parameters, fp16, batch {batch}: {side}"
        spread = f"median of {len(taken)} runs ({min(taken):.0f} to {max(taken):.0f})"
        how = f"measured, {spread}, {work.answer} tokens after {work.prompt}, {found.where['gpu']}"
        yield Figure(Topic.INFERENCE, what, medians[side], RATE, None, how)
    ours = medians.pop(FT)
    how = f"measured in turn, medians; {FT} through gRPC and the server"
    for side, theirs in medians.items():
        yield Figure(
            Topic.INFERENCE, f"batch {batch}: {FT} / {side}", ours / theirs, "", 1.0, how, at_most=False
        )


def _variants(found: Found) -> Iterator[Figure]:
    """Yield every variant relative to the first, on servers started in turn."""
    times, ready, first = together(found.sessions), _ready(found), found.first.variant
    how = f"measured, {found.job.rounds} servers each in turn, medians, {found.where['gpu']}"
    for variant in found.job.variants[1:]:
        for batch in found.job.workload.batches:
            ratio = _rate(found, times[variant.name], batch) / _rate(found, times[first], batch)
            what = f"batch {batch}: {RATE} of {variant.name} / {first}"
            yield Figure(Topic.INFERENCE, what, ratio, "", None, how)
        ratio = statistics.median(ready[variant.name]) / statistics.median(ready[first])
        yield Figure(Topic.INFERENCE, f"time to ready of {variant.name} / {first}", ratio, "", None, how)


def _chart(found: Found, name: str, title: str, times: dict[str, Times]) -> Bars:
    size = f"{found.job.shape.parameters / 1e9:.2f} billion parameters"
    batches = found.job.workload.batches
    labels = tuple(f"batch {batch}" for batch in batches)
    series = {side: tuple(_rate(found, of, batch) for batch in batches) for side, of in times.items()}
    return Bars(name, f"{title}, {size}, fp16, {found.where['gpu']}", "tokens per second", labels, series)


def _ready(found: Found) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for session in found.sessions:
        seconds.setdefault(session.variant, []).append(session.ready_seconds)
    return seconds


def _equal(found: Found) -> Iterator[tuple[str, int, list[int]]]:
    """Yield, for every other side and batch, the number of leading tokens that each row shares with ours."""
    ours = found.compared.answers[FT]
    for side, answers in found.compared.answers.items():
        for batch, theirs in answers.items():
            if side != FT:
                yield side, batch, equal_tokens(ours[batch], theirs)

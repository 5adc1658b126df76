"""Data of a measurement, and figures and charts that follow from it. Pure.

A life is one start of a server or of another engine. Its rate is the median of its runs; a rate of several
lives is their median, with the slowest and the fastest of them.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Topic
from benchmarks.topics.inference import server
from benchmarks.topics.inference.job import Found
from benchmarks.topics.inference.measure import FT, Times, equal_tokens
from benchmarks.topics.inference.server import Variant

RATE = "tokens/s"
Data = Mapping[str, Any]


@dataclass(frozen=True)
class Rate:
    """A rate, or a ratio of two: the median with the least and the most."""

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

    def figure(self, what: str, unit: str, how: str, goal: float | None = None) -> Figure:
        """Return it as a figure, whose goal is a lower limit."""
        return Figure(
            Topic.INFERENCE, what, self.median, unit, goal, how, False, least=self.least, most=self.most
        )


def data(found: Found) -> dict[str, Any]:
    """Return all times and the settings of the measurement."""
    return {
        **found.where,
        "model": found.job.shape.name,
        "shape": asdict(found.job.shape),
        "parameters": found.job.shape.parameters,
        "workload": asdict(found.job.workload),
        "variants": {variant.name: _settings(variant) for variant in found.job.variants},
        "first": asdict(found.first),
        "seconds": found.compared.times,
        "failures": {**found.compared.failures, **found.failures},
        "equal_tokens": {f"{side}, batch {batch}": equal for side, batch, equal in _equal(found)},
        "peers": list(found.job.peers),
        "sessions": [asdict(replace(session, answers={})) for session in found.sessions],
    }


def figures(of: Data) -> Iterator[Figure]:
    """Yield the rates of all sides, their ratios, equal tokens, time to ready, and the variants."""
    for batch in of["workload"]["batches"]:
        yield from _batch(of, batch)
    for name, equal in of["equal_tokens"].items():
        side, _, batch = name.rpartition(", ")
        what = f"{batch}: first tokens equal to those of {side}, median of rows"
        how = f"measured, greedy, {of['workload']['answer']} tokens a row"
        yield Figure(Topic.INFERENCE, what, statistics.median(equal), "tokens", None, how)
    ready = Rate.of([_first(of)["ready_seconds"], *_ready(of, _first(of)["variant"])])
    starts = 1 + len(_ready(of, _first(of)["variant"]))
    yield ready.figure(
        "time to ready", "s", f"measured, median of {starts} starts, weights in the page cache"
    )
    yield from _variants(of)


def charts(of: Data) -> list[Bars]:
    """Return the charts of the sides that answered every batch, and of the variants."""
    batches = of["workload"]["batches"]
    sides = {side: [_side(of, side, batch).median for batch in batches] for side in _able(of)}
    drawn = [_chart(of, "inference", _model(of), sides)]
    if len(of["variants"]) > 1:
        varied = {name: [_together(of, name, batch).median for batch in batches] for name in of["variants"]}
        drawn.append(_chart(of, "inference-variants", f"Variants of the server, {_model(of)}", varied))
    return drawn


def rates(times: Times, batch: int, answer: int) -> list[float]:
    """Return tokens per second of every run with `batch` rows of `answer` tokens."""
    return [batch * answer / seconds for seconds in times[batch]]


def _settings(variant: Variant) -> dict[str, str]:
    library = variant.library and hashlib.sha256((variant.library / server.LIBRARY).read_bytes()).hexdigest()
    chosen = {"cpus": variant.cpus, "image": variant.image, "library": library and f"sha256:{library}"}
    return {**variant.environment, **{name: value for name, value in chosen.items() if value}}


def _first(of: Data) -> Data:
    first: Data = of["first"]
    return first


def _model(of: Data) -> str:
    """Return the family, which records of the only one that there was do not name."""
    return str(of.get("model", "GPT"))


def _peers(of: Data) -> list[str]:
    """Return the other engines, which records of before there were any do not name."""
    return list(of.get("peers", ()))


def _able(of: Data) -> list[str]:
    return [side for side in (*of["seconds"], *_peers(of)) if side not in of["failures"]]


def _life(of: Data, times: Mapping[Any, list[float]], batch: int) -> float:
    """Return the rate of one life; JSON has the batches as text."""
    by_batch = {int(size): seconds for size, seconds in times.items()}
    return statistics.median(rates(by_batch, batch, of["workload"]["answer"]))


def _lives(of: Data, variant: str, batch: int) -> list[float]:
    """Return the rate of each server of a variant that was started in turn with the other variants."""
    sessions = (session for session in of["sessions"] if session["variant"] == variant)
    return [_life(of, session["times"], batch) for session in sessions]


def _together(of: Data, variant: str, batch: int) -> Rate:
    return Rate.of(_lives(of, variant, batch))


def _side(of: Data, side: str, batch: int) -> Rate:
    """Return the rate of a side: of ours and of a peer by its lives, else by the runs of the only one."""
    if side in _peers(of):
        return _together(of, side, batch)
    times = of["seconds"][side]
    if side == FT:
        return Rate.of([_life(of, times, batch), *_lives(of, _first(of)["variant"], batch)])
    by_batch = {int(size): seconds for size, seconds in times.items()}
    return Rate.of(rates(by_batch, batch, of["workload"]["answer"]))


def _batch(of: Data, batch: int) -> Iterator[Figure]:
    work, starts = of["workload"], 1 + len(_lives(of, _first(of)["variant"], batch))
    asked = f"{work['answer']} tokens after {work['prompt']}, {of['gpu']}"
    lives = f"median of {starts} starts of the server, each the median of {work['runs']} runs"
    ours = _side(of, FT, batch)
    peers = [side for side in _peers(of) if _lives(of, side, batch)]
    answered = [side for side, times in of["seconds"].items() if batch in map(int, times)] + peers
    size = f"{_model(of)} of {of['parameters'] / 1e9:.2f} billion parameters, fp16"
    for side in answered:
        taken = lives if side == FT else f"median of {work['runs']} runs of one process"
        if side in peers:
            taken = f"{_version(of, side)}, median of {len(_lives(of, side, batch))} starts, each of its runs"
        yield _side(of, side, batch).figure(
            f"{size}, batch {batch}: {side}", RATE, f"measured, {taken}, {asked}"
        )
    how = (
        f"measured, {lives}, the goal judged by the slowest start; {FT} through gRPC and the server, "
        "its first start in turn with the other"
    )
    for side in answered:
        if side in peers:
            ratio = ours.over(_side(of, side, batch))
            judged = f"measured, {lives}, started in turn with the other, the goal judged by the ends"
            yield ratio.figure(f"batch {batch}: {RATE} of {FT} / {side}", "", judged, 1.0)
        elif side != FT:
            theirs = _side(of, side, batch).median
            ratio = ours.over(Rate(theirs, theirs, theirs))
            yield ratio.figure(f"batch {batch}: {RATE} of {FT} / {side}", "", how, 1.0)


def _version(of: Data, peer: str) -> str:
    session = next(session for session in of["sessions"] if session["variant"] == peer)
    return f"{peer} {session['settings']['version']}"


def _variants(of: Data) -> Iterator[Figure]:
    """Yield every variant relative to the first, on servers started in turn."""
    first, *others = of["variants"]
    for name in others:
        for batch in of["workload"]["batches"]:
            found, shipped = _together(of, name, batch), _together(of, first, batch)
            how = f"measured, {len(_lives(of, name, batch))} servers each in turn, medians, {of['gpu']}"
            yield found.over(shipped).figure(f"batch {batch}: {RATE} of {name} / {first}", "", how)
        ready = Rate.of(_ready(of, name)).over(Rate.of(_ready(of, first)))
        yield ready.figure(f"time to ready of {name} / {first}", "", how)


def _ready(of: Data, variant: str) -> list[float]:
    """Return the seconds to ready of each server of a variant that was started in turn with the others."""
    return [session["ready_seconds"] for session in of["sessions"] if session["variant"] == variant]


def _chart(of: Data, name: str, title: str, series: Mapping[str, Sequence[float]]) -> Bars:
    labels = tuple(f"batch {batch}" for batch in of["workload"]["batches"])
    size = f"{of['parameters'] / 1e9:.2f} billion parameters"
    bars = {side: tuple(values) for side, values in series.items()}
    return Bars(name, f"{title}, {size}, fp16, {of['gpu']}", "tokens per second", labels, bars)


def _equal(found: Found) -> Iterator[tuple[str, int, list[int]]]:
    """Yield, for every other side and batch, the number of leading tokens that each row shares with ours."""
    ours = found.compared.answers[FT]
    of_peers = {each.variant: each.answers for each in found.sessions if each.variant in found.job.peers}
    for side, answers in {**found.compared.answers, **of_peers}.items():
        for batch, theirs in answers.items():
            if side != FT:
                yield side, batch, equal_tokens(ours[batch], theirs)

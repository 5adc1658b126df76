"""Data of a measurement, and figures, a table and charts that follow from it. Pure.

A life is one start of a server or of another engine. Its rate is the median of its runs; a rate of several
lives is their median, with the slowest and the fastest of them.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Topic, digits
from benchmarks.harness.rate import Rate
from benchmarks.topics.inference import server
from benchmarks.topics.inference.job import Found
from benchmarks.topics.inference.measure import FT, Request, Times, Workload, equal_tokens
from benchmarks.topics.inference.server import Variant

RATE = "tokens/s"
# Bytes a second that a GPU reads from its memory (NVIDIA's data sheets of H100 SXM and H200).
BANDWIDTHS = {"NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA H200": 4.8e12}
# The goals: ahead of the others in these batches, and a part of what the memory's bandwidth allows one row.
AHEAD_IN = (1, 8)
OF_BANDWIDTH = 0.6
BYTES = 2  # of a number in fp16
Data = Mapping[str, Any]


def data(outcome: Found) -> dict[str, Any]:
    """Return all times and the settings of the measurement."""
    shape = outcome.job.shape
    return {
        **outcome.where,
        "model": shape.name,
        "family": shape.family,
        "shape": asdict(shape),
        "parameters": shape.parameters,
        "parameters_of_a_step": shape.step,
        "workload": asdict(outcome.job.workload),
        "variants": {variant.name: _settings(variant) for variant in outcome.job.variants},
        "first": asdict(outcome.first),
        "seconds": outcome.compared.times,
        "failures": {**outcome.compared.failures, **outcome.failures},
        "equal_tokens": {side: dict(equal) for side, equal in _equal(outcome)},
        "peers": list(outcome.job.peers),
        "sessions": [asdict(replace(session, answers={})) for session in outcome.sessions],
    }


def figures(of: Data) -> Iterator[Figure]:
    """Yield what has a goal, the part of the memory's bandwidth and the ratios, time to ready, and variants.

    The rates themselves, also of other batches, are in the table.
    """
    for request in _workload(of).whole():
        yield from _of_bandwidth(of, request)
        yield from _ratios(of, request)
    ready = Rate.of([_first(of)["ready_seconds"], *_ready(of, _first(of)["variant"])])
    how = f"measured, median of {_counted(_starts(of))}, weights in the page cache"
    yield ready.figure(Topic.INFERENCE, f"{_size(of)}: time to ready", "s", how)
    yield from _variants(of)


def table(of: Data) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and the rows of a table: for each request what every side reached.

    That is tokens per second with the slowest and the fastest life, milliseconds to the first token, and how
    many first tokens are ours, in the median of the rows.
    """
    sides = _able(of)
    titles = ("prompt", "batch", *(_named(of, side) for side in sides))
    rows = [
        (str(request.prompt), str(request.batch), *(_cell(of, side, request) for side in sides))
        for request in _workload(of).whole()
    ]
    return titles, rows


def title(of: Data) -> str:
    """Return what the table is of."""
    work = _workload(of)
    return f"{_size(of)}, fp16, {work.answer} tokens on one {of['gpu']}"


def charts(of: Data) -> list[Bars]:
    """Return a chart for each length of prompts, of the sides that answered every batch, and of variants."""
    drawn = []
    for prompt in _workload(of).prompts:
        requests = [request for request in _workload(of).whole() if request.prompt == prompt]
        able = [side for side in _able(of) if all(_answered(of, side, request) for request in requests)]
        series = {side: [_side(of, side, request).median for request in requests] for side in able}
        drawn.append(_chart(of, f"inference-{of['family']}-{prompt}", f"prompts of {prompt}", series))
    if variants := _varied(of):
        first, *_ = _workload(of).prompts
        requests = [request for request in _workload(of).whole() if request.prompt == first]
        varied = {name: [_together(of, name, each).median for each in requests] for name in variants}
        drawn.append(_chart(of, f"inference-{of['family']}-variants", "variants of the server", varied))
    return drawn


def rates(times: Times, request: Request) -> list[float]:
    """Return tokens per second of every run of a request."""
    return [request.batch * request.answer / seconds for seconds in times[request.name]]


def _settings(variant: Variant) -> dict[str, str]:
    library = variant.library and hashlib.sha256((variant.library / server.LIBRARY).read_bytes()).hexdigest()
    chosen = {"cpus": variant.cpus, "image": variant.image, "library": library and f"sha256:{library}"}
    return {**variant.environment, **{name: value for name, value in chosen.items() if value}}


def _workload(of: Data) -> Workload:
    """Return the workload; JSON has its tuples as lists."""
    work = of["workload"]
    return Workload(**{**work, "prompts": tuple(work["prompts"]), "batches": tuple(work["batches"])})


def _first(of: Data) -> Data:
    first: Data = of["first"]
    return first


def _size(of: Data) -> str:
    return f"{of['model']} of {of['parameters'] / 1e9:.2f} billion parameters"


def _able(of: Data) -> list[str]:
    """Return the sides that did not fail; a peer also needs to have been started."""
    started = {session["variant"] for session in of["sessions"]}
    sides = (*of["seconds"], *(peer for peer in of["peers"] if peer in started))
    return [side for side in sides if side not in of["failures"]]


def _varied(of: Data) -> list[str]:
    """Return the variants that were started in turn with each other; none where the time was up before."""
    started = {session["variant"] for session in of["sessions"]}
    varied = [name for name in of["variants"] if name in started]
    return varied if len(varied) > 1 else []


def _answered(of: Data, side: str, request: Request) -> bool:
    if side in of["peers"]:
        return bool(_lives(of, side, request))
    return request.name in of["seconds"][side]


def _lives(of: Data, variant: str, request: Request) -> list[float]:
    """Return the rate of each life of a variant or an engine that was started in turn with the others."""
    return [
        statistics.median(rates(session["times"], request))
        for session in of["sessions"]
        if session["variant"] == variant
    ]


def _together(of: Data, variant: str, request: Request) -> Rate:
    return Rate.of(_lives(of, variant, request))


def _side(of: Data, side: str, request: Request) -> Rate:
    """Return the rate of a side: of ours and of a peer by its lives, else by the runs of the only one."""
    if side in of["peers"]:
        return _together(of, side, request)
    runs = rates(of["seconds"][side], request)
    if side == FT:
        return Rate.of([statistics.median(runs), *_lives(of, _first(of)["variant"], request)])
    return Rate.of(runs)


def _counted(starts: int) -> str:
    return "1 start" if starts == 1 else f"{starts} starts"


def _named(of: Data, side: str) -> str:
    """Return a side with its version and how often it was started."""
    if side == FT:
        return f"{FT}, {_counted(_starts(of))}"
    if side in of["peers"]:
        session, *more = (session for session in of["sessions"] if session["variant"] == side)
        return f"{side} {session['settings']['version']}, {_counted(1 + len(more))}"
    return f"{side} {of['transformers']}" if "transformers" in of else side


def _cell(of: Data, side: str, request: Request) -> str:
    if not _answered(of, side, request):
        return ""
    rate, first = _side(of, side, request), replace(request, answer=1)
    seconds = request.batch / _side(of, side, first).median
    equal = of["equal_tokens"].get(side, {}).get(request.name)
    text = f"{digits(rate.median)} ({digits(rate.least)} to {digits(rate.most)}); {digits(1000 * seconds)} ms"
    return text if equal is None else f"{text}; {statistics.median(equal):g} equal"


def _starts(of: Data) -> int:
    """Return how often the first variant's server was started."""
    return 1 + len(_ready(of, _first(of)["variant"]))


def _how(of: Data) -> str:
    of_each = f"each the median of {of['workload']['runs']} runs"
    return f"measured, median of {_counted(_starts(of))} of the server, {of_each}, through gRPC, {of['gpu']}"


def _of_bandwidth(of: Data, request: Request) -> Iterator[Figure]:
    """Yield the part of the rate at which one row's steps could read their weights once each."""
    if request.batch != 1 or of["gpu"] not in BANDWIDTHS:
        return
    limit = BANDWIDTHS[of["gpu"]] / (BYTES * of["parameters_of_a_step"])
    how = f"{_how(of)}; limit {digits(limit)} {RATE}, every weight of a step read once"
    part = _side(of, FT, request).over(Rate(limit, limit, limit))
    yield part.figure(
        Topic.INFERENCE, f"{_size(of)}, {request.name}: {RATE} / limit of the memory", "", how, OF_BANDWIDTH
    )


def _ratios(of: Data, request: Request) -> Iterator[Figure]:
    """Yield the ratio to each other side: to a peer by the ends of both, to transformers by its median."""
    if request.batch not in AHEAD_IN:
        return
    own = _side(of, FT, request)
    for side in _able(of):
        if side == FT or not _answered(of, side, request):
            continue
        peer = _side(of, side, request)
        if side in of["peers"]:
            judged = f"{_how(of)}; started in turn with {_named(of, side)}; the goal judged by the ends"
        else:
            peer = Rate(peer.median, peer.median, peer.median)
            judged = f"{_how(of)}; the goal judged by the slowest start, of which the first took turns"
        what = f"{_size(of)}, {request.name}: {RATE} of {FT} / {side}"
        yield own.over(peer).figure(Topic.INFERENCE, what, "", judged, 1.0)


def _variants(of: Data) -> Iterator[Figure]:
    """Yield every variant relative to the first, on servers started in turn."""
    if not (variants := _varied(of)):
        return
    first, *others = variants
    for name in others:
        for request in _workload(of).whole():
            rates, shipped = _together(of, name, request), _together(of, first, request)
            how = f"measured, {len(_lives(of, name, request))} servers each in turn, medians, {of['gpu']}"
            yield rates.over(shipped).figure(
                Topic.INFERENCE, f"{request.name}: {RATE} of {name} / {first}", "", how
            )
        ready = Rate.of(_ready(of, name)).over(Rate.of(_ready(of, first)))
        yield ready.figure(Topic.INFERENCE, f"time to ready of {name} / {first}", "", how)


def _ready(of: Data, variant: str) -> list[float]:
    """Return the seconds to ready of each server of a variant that was started in turn with the others."""
    return [session["ready_seconds"] for session in of["sessions"] if session["variant"] == variant]


def _chart(of: Data, name: str, of_what: str, series: Mapping[str, Sequence[float]]) -> Bars:
    labels = tuple(f"batch {batch}" for batch in of["workload"]["batches"])
    bars = {side: tuple(values) for side, values in series.items()}
    return Bars(name, f"{_size(of)}, {of_what}, {of['gpu']}", "tokens per second", labels, bars)


def _equal(outcome: Found) -> Iterator[tuple[str, Iterator[tuple[str, list[int]]]]]:
    """Yield, for every other side, by request the number of leading tokens that each row shares with ours."""
    own = outcome.compared.answers[FT]
    of_peers = {each.variant: each.answers for each in outcome.sessions if each.variant in outcome.job.peers}
    whole = [request.name for request in outcome.job.workload.whole()]
    for side, answers in {**outcome.compared.answers, **of_peers}.items():
        if side != FT:
            yield side, ((name, equal_tokens(own[name], answers[name])) for name in whole if name in answers)

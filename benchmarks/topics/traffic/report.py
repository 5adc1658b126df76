"""Data of a measurement, and figures, a table and charts that follow from it. Pure.

A session is one start of a server. Rates and times of several sessions are their median, with the least and
the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness.chart import Bars, Lines
from benchmarks.harness.figure import Figure, Topic, digits
from benchmarks.harness.rate import Rate
from benchmarks.topics.traffic import trace
from ftbuild.client.latency import percentile

RATE = "tokens/s"
# The goals: at least as fast as vLLM, twice as fast as CTranslate2 with a model that vLLM lacks, and short
# answers among long ones within a second.
AHEAD_OF = {"vLLM": 1.0}
WITHOUT_VLLM = {"t5": {"CTranslate2": 2.0}}
SHORT_SECONDS, SHORT_CLIENTS = 1.0, 64
# What records from before models were measured on several GPUs do not say.
ON_ONE_GPU = {"gpus": 1, "instances": 1}
Data = Mapping[str, Any]


def rate(seen: Data, of: Data) -> float:
    """Return the tokens of all answers by the seconds from the first request to the last answer."""
    failed = {int(number) for number in seen["failures"]}
    tokens: int = sum(answer for number, answer in enumerate(of["answers"]) if number not in failed)
    seconds: float = max(seen["done"]) - min(seen["sent"])
    return tokens / seconds


def latencies(seen: Data, of: Data, band: int | None = None) -> list[float]:
    """Return the seconds of all answers, or of those in a band of lengths; without those that failed."""
    return _seconds(seen, of, seen["done"], band)


def first_tokens(seen: Data, of: Data) -> list[float]:
    """Return the seconds to each first token; none where they are unknown."""
    return _seconds(seen, of, seen["first"], None) if seen["first"] else []


def line(seen: Data, of: Data) -> str:
    """Return a line about a load."""
    whole = latencies(seen, of)
    texts = [
        f"{digits(rate(seen, of))} {RATE}",
        f"p50 {percentile(whole, 50):.2f} s, p99 {percentile(whole, 99):.2f} s",
    ]
    for band in trace.BANDS:
        if line_of_latencies := latencies(seen, of, band):
            texts.append(f"{trace.band_name(band)}: p99 {percentile(line_of_latencies, 99):.2f} s")
    if first := first_tokens(seen, of):
        texts.append(f"first token: p50 {percentile(first, 50):.3f} s, p99 {percentile(first, 99):.3f} s")
    if seen["checked"]:
        texts.append(f"{seen['unlike']} of {seen['checked']} unlike the answer alone")
    if seen["failures"]:
        texts.append(
            f"{len(seen['failures'])} without an answer: {next(iter(seen['failures'].values()))[:200]}"
        )
    return "; ".join(texts)


def figures(of: Data) -> Iterator[Figure]:
    """Yield of every load our rate, the ratio to each other side, and what has a goal of its own."""
    own = of["ours"]
    for load in of["traces"]:
        if not _sessions(of, own, load):
            continue
        name, how = f"{_size(of)}, {load}", _how(of, load)
        mine = _of_all(of, own, load, rate)
        yield mine.figure(Topic.TRAFFIC, f"{name}: {RATE}", RATE, how)
        for side in _others(of):
            if _sessions(of, side, load):
                ratio = mine.over(_of_all(of, side, load, rate))
                what = f"{name}: {RATE} of {own} / {side}"
                judged = f"{how}; started in turn with {_named(of, side)}; the goal judged by the ends"
                yield ratio.figure(Topic.TRAFFIC, what, "", judged, _goal(of, side))
        yield from _short(of, load, name, how)
        if checked := sum(seen["checked"] for seen in _sessions(of, own, load)):
            unlike = sum(seen["unlike"] for seen in _sessions(of, own, load))
            what = f"{name}: answers unlike those alone, of {checked}"
            exact = 0 if of["data_type"] == "fp32" else None
            yield Figure(Topic.TRAFFIC, what, unlike, "", exact, how)


def table(of: Data) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return titles and rows: of every load and side rate, seconds by percentile and length, and mistakes."""
    bands = [f"{trace.band_name(band)}, p99 s" for band in trace.BANDS]
    titles = (
        *("load", "side", RATE, "p50 s", "p99 s", *bands),
        *("first token, p50 and p99 s", "unlike alone", "not answered"),
    )
    rows = [
        (load, _named(of, side), *_cells(of, side, load))
        for load in of["traces"]
        for side in _sides(of)
        if _sessions(of, side, load)
    ]
    return titles, rows


def subject(of: Data) -> str:
    """Return what a record is of: the family, and how it is spread over GPUs (`gptj-tp4`, `gptj-x4`)."""
    ways = dict(zip(("tp", "x"), _spread(of), strict=True))
    return "-".join([of["family"], *(f"{way}{count}" for way, count in ways.items() if count > 1)])


def title(of: Data) -> str:
    """Return what the table is of."""
    answers = "streamed answers" if of["streamed"] else "whole answers"
    return f"{_size(of)}, {of['data_type']}, {answers}, on {_gpus(of, 'one')}"


def charts(of: Data) -> list[Bars | Lines]:
    """Return a chart of rates, one of the slowest answers by length, and one of rates of arrival."""
    loads = [load for load in of["traces"] if all(_sessions(of, side, load) for side in _sides(of))]
    if not loads:
        return []
    name = f"traffic-{subject(of)}"
    rates = {side: tuple(_of_all(of, side, load, rate).median for load in loads) for side in _sides(of)}
    rows = [(load, band) for load in loads for band in trace.BANDS if _lengths(of, load, band)]
    slow = {
        side: tuple(_of_all(of, side, load, _p(99, band)).median for load, band in rows)
        for side in _sides(of)
    }
    labels = tuple(f"{load}:\n{trace.band_name(band)}" for load, band in rows)
    about = f"{_size(of)}, {_gpus(of)}"
    drawn: list[Bars | Lines] = [
        Bars(f"{name}-rate", f"Traffic: {about}", "tokens per second", tuple(loads), rates),
        Bars(f"{name}-slow", f"Traffic, 99th percentile: {about}", "seconds", labels, slow),
    ]
    arriving = sorted((of["traces"][load]["rate"], load) for load in loads if of["traces"][load]["rate"])
    if len(arriving) > 1:
        series = {
            side: tuple((each, _of_all(of, side, load, _p(99)).median) for each, load in arriving)
            for side in _sides(of)
        }
        what = f"Whole answers, 99th percentile: {about}"
        drawn.append(Lines(f"{name}-open", what, "requests per second", "seconds", series))
    return drawn


def _seconds(seen: Data, of: Data, ends: Sequence[float], band: int | None) -> list[float]:
    failed = {int(number) for number in seen["failures"]}
    return [
        end - sent
        for number, (sent, end, answer) in enumerate(zip(seen["sent"], ends, of["answers"], strict=True))
        if number not in failed and band in (None, trace.band(answer))
    ]


def _sides(of: Data) -> list[str]:
    """Return the names of the variants and engines that were measured, Triton's first."""
    return list(dict.fromkeys([of["ours"], *(session["variant"] for session in of["sessions"])]))


def _others(of: Data) -> list[str]:
    return [side for side in _sides(of) if side != of["ours"]]


def _sessions(of: Data, side: str, load: str) -> list[Data]:
    """Return what a side did with a load in each of its sessions."""
    return [
        session["loads"][load]
        for session in of["sessions"]
        if session["variant"] == side and load in session["loads"]
    ]


def _of_all(of: Data, side: str, load: str, number: Callable[[Data, Data], float]) -> Rate:
    """Return a number of each session of a side."""
    return Rate.of([number(seen, of["traces"][load]) for seen in _sessions(of, side, load)])


def _p(percent: int, band: int | None = None) -> Callable[[Data, Data], float]:
    return lambda seen, of: percentile(latencies(seen, of, band) or [0.0], percent)


def _lengths(of: Data, load: str, band: int) -> list[int]:
    return [answer for answer in of["traces"][load]["answers"] if trace.band(answer) == band]


def _size(of: Data) -> str:
    """Return the model with its size, and how it is spread over GPUs; the sample's has no size."""
    sized = f"{of['model']} of {of['parameters'] / 1e9:.2f} billion parameters" if of["parameters"] else ""
    gpus, instances = _spread(of)
    over = f" over {gpus} GPUs" if gpus > 1 else ""
    return (sized or str(of["model"])) + over + (f", {instances} instances" if instances > 1 else "")


def _spread(of: Data) -> tuple[int, int]:
    """Return the GPUs of an instance, and how many instances there are."""
    known = {**ON_ONE_GPU, **of}
    return known["gpus"], known["instances"]


def _gpus(of: Data, single: str = "") -> str:
    """Return the GPUs by name, with their number; `single` is that of one."""
    count = math.prod(_spread(of))
    return f"{single if count == 1 else count} {of['gpu']}".lstrip()


def _named(of: Data, side: str) -> str:
    """Return a side with its version and how often it was started."""
    sessions = [session for session in of["sessions"] if session["variant"] == side]
    version = next((each["settings"]["version"] for each in sessions if "version" in each["settings"]), "")
    starts = "1 start" if len(sessions) == 1 else f"{len(sessions)} starts"
    return f"{side} {version}, {starts}" if version else f"{side}, {starts}"


def _how(of: Data, load: str) -> str:
    answers = "streamed" if of["streamed"] else "whole answers"
    return f"measured, {_named(of, of['ours'])}, {of['data_type']}, {answers} through gRPC, {_gpus(of)}"


def _goal(of: Data, side: str) -> float | None:
    return {**AHEAD_OF, **WITHOUT_VLLM.get(of["family"], {})}.get(side)


def _short(of: Data, load: str, name: str, how: str) -> Iterator[Figure]:
    """Yield how long the slowest of the shortest answers take, where they are among long ones."""
    drawn = of["traces"][load]
    if drawn["mix"] != "short":
        return
    slow = _of_all(of, of["ours"], load, _p(99, trace.SHORT))
    goal = SHORT_SECONDS if drawn["clients"] == SHORT_CLIENTS else None
    what = f"{name}: {trace.band_name(trace.SHORT)}, 99th percentile"
    yield slow.figure(Topic.TRAFFIC, what, "s", how, goal, at_most=True)


def _cells(of: Data, side: str, load: str) -> Iterator[str]:
    sessions, drawn = _sessions(of, side, load), of["traces"][load]
    rates = _of_all(of, side, load, rate)
    yield f"{digits(rates.median)} ({digits(rates.least)} to {digits(rates.most)})"
    for percent in (50, 99):
        yield digits(_of_all(of, side, load, _p(percent)).median)
    for band in trace.BANDS:
        yield digits(_of_all(of, side, load, _p(99, band)).median) if _lengths(of, load, band) else ""
    first = [first_tokens(seen, drawn) for seen in sessions]
    yield (
        ", ".join(
            digits(Rate.of([percentile(each, percent) for each in first]).median) for percent in (50, 99)
        )
        if all(first)
        else ""
    )
    checked = sum(seen["checked"] for seen in sessions)
    yield f"{sum(seen['unlike'] for seen in sessions)} of {checked}" if checked else ""
    yield str(sum(len(seen["failures"]) for seen in sessions))

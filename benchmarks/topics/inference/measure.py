"""Measurements: the sides in turn on one server, then contenders that are started again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from benchmarks.topics.inference.life import Contender, Life
    from benchmarks.topics.inference.sides import Prompts, Side

S = TypeVar("S")
T = TypeVar("T")

FT = "FasterTransformer"
SEED = 8
# Seconds of every run, by the name of the request.
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Request:
    """A request: `batch` rows of `prompt` random tokens, each continued by `answer`."""

    prompt: int
    batch: int
    answer: int

    @property
    def name(self) -> str:
        """Return its name, as in a record."""
        return f"batch {self.batch}, {self.answer} after {self.prompt}"

    def prompts(self, below: int) -> Prompts:
        """Return random tokens smaller than `below`, the same in every run."""
        import numpy as np

        drawn = np.random.default_rng(SEED).integers(0, below, (self.batch, self.prompt))
        return drawn.astype(np.uint32)


@dataclass(frozen=True)
class Workload:
    """The requests: `answer` tokens after prompts of these lengths, in these batches, `runs` times each.

    Each also with an answer of one token: the time to the first.
    """

    prompts: tuple[int, ...] = (128,)
    answer: int = 128
    batches: tuple[int, ...] = (1, 8)
    runs: int = 7
    warm_ups: int = 3

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest prompt with its answer."""
        return max(self.prompts) + self.answer

    def whole(self) -> Iterator[Request]:
        """Yield the requests of whole answers, by prompt and batch."""
        for prompt in self.prompts:
            for batch in self.batches:
                yield Request(prompt, batch, self.answer)

    def requests(self) -> Iterator[Request]:
        """Yield all requests: each one of a whole answer, then that of its first token."""
        for request in self.whole():
            yield request
            yield replace(request, answer=1)


@dataclass(frozen=True)
class Compared:
    """The comparison: seconds and answers by side and request, and the reasons of failed sides."""

    times: Mapping[str, Times]
    answers: Mapping[str, Mapping[str, list[list[int]]]]
    failures: Mapping[str, str]


@dataclass(frozen=True)
class Session:
    """A life that was measured, of a variant or an engine: seconds and answers, by request."""

    variant: str
    ready_seconds: float
    cores: str
    times: Times = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, list[list[int]]] = field(default_factory=dict)


def progress(text: str) -> None:
    """Print a line about the progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def compare(sides: Sequence[Side], workload: Workload, below: int) -> Compared:
    """Measure all sides in turn, in an order that alternates from run to run.

    A side that fails is left out from then on; a failure of the first is raised.
    """
    times: dict[str, Times] = {side.name: {} for side in sides}
    answers: dict[str, dict[str, list[list[int]]]] = {side.name: {} for side in sides}
    failures: dict[str, str] = {}
    for request in workload.requests():
        prompts = request.prompts(below)
        askable = [side for side in sides if side.prompt in (None, request.prompt)]
        able = [side for side in askable if side.name not in failures]
        for side in able:
            try:
                answers[side.name][request.name] = _warm(side, prompts, request, workload.warm_ups)
            except Exception as failed:
                if side is sides[0]:
                    raise
                failures[side.name] = f"{request.name}: {type(failed).__name__}: {failed}"
                progress(f"{side.name} failed: {failures[side.name]}")
        able = [side for side in able if side.name not in failures]
        for number in range(workload.runs):
            for side in able if number % 2 == 0 else reversed(able):
                seconds = _timed(partial(side.answer, prompts, request.answer))
                times[side.name].setdefault(request.name, []).append(seconds)
        for side in able:
            taken = ", ".join(f"{seconds:.3f}" for seconds in times[side.name][request.name])
            progress(f"{request.name}, {side.name}: {taken} s")
    return Compared(times, answers, failures)


def vary(
    contenders: Sequence[Contender[Side]],
    workload: Workload,
    below: int,
    logs: Path,
    rounds: int,
    until: float | None = None,
) -> tuple[list[Session], dict[str, str]]:
    """Measure every contender `rounds` times, as `in_turn`."""
    return in_turn(contenders, partial(_session, workload, below), logs, rounds, until)


def in_turn(
    contenders: Sequence[Contender[S]],
    measured: Callable[[Contender[S], Life[S]], T],
    logs: Path,
    rounds: int,
    until: float | None = None,
) -> tuple[list[T], dict[str, str]]:
    """Measure every contender `rounds` times, each time restarted and alone, in alternating order.

    None is started after the moment `until` of the monotonic clock, or after Ctrl-C. Returns what was
    measured and the reasons of those that failed, by name: they are left out from then on.
    """
    results: list[T] = []
    failures: dict[str, str] = {}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            if contender.name in failures:
                continue
            if until is not None and time.monotonic() > until:
                progress(f"the time is up before start {number + 1} of {contender.name}")
                return results, failures
            try:
                with contender.start(logs / f"{contender.name}-{number}.log") as life:
                    progress(f"{contender.name}: ready after {life.ready_seconds:.1f} s")
                    results.append(measured(contender, life))
            except KeyboardInterrupt:
                progress(f"interrupted in start {number + 1} of {contender.name}: what was measured is kept")
                return results, failures
            except Exception as failed:
                if not contender.may_fail:
                    raise
                failures[contender.name] = f"{type(failed).__name__}: {failed}"
                progress(f"{contender.name} failed: {failures[contender.name]}")
    return results, failures


def _session(workload: Workload, below: int, contender: Contender[Side], life: Life[Side]) -> Session:
    compared = compare([life.side], workload, below)
    times, answers = compared.times[life.side.name], compared.answers[life.side.name]
    return Session(contender.name, life.ready_seconds, life.cores, times, life.settings, answers)


def equal_tokens(first: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> list[int]:
    """Return the number of equal leading tokens of each row."""
    return [_leading(a, b) for a, b in zip(first, other, strict=True)]


def _leading(first: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(first, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(first), len(other)))


def _warm(side: Side, prompts: Prompts, request: Request, warm_ups: int) -> list[list[int]]:
    """Return the answer after the warm-ups; ValueError for too few tokens, which would look fast."""
    start = time.monotonic()
    for _ in range(warm_ups):
        answers = side.answer(prompts, request.answer)
    progress(f"{request.name}, {side.name}: {warm_ups} warm-ups in {time.monotonic() - start:.1f} s")
    if any(len(row) != request.answer for row in answers):
        raise ValueError(f"{side.name} gave {[len(row) for row in answers]} tokens, not {request.answer}")
    return answers


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

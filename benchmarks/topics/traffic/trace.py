"""Traces: which requests come, how long their prompts and answers are, and when they arrive. Pure.

Everything is drawn from a seed that the name of the load decides, so every side of a comparison gets the same
requests, and no two loads share a prompt that a cache could keep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

SEED = 20404
# Tokens of a prompt: log-normal, with this median and this standard deviation of its logarithm, clipped.
PROMPT_MEDIAN, PROMPT_SIGMA = 120, 0.8
PROMPT_LEAST, PROMPT_MAX = 8, 900
LEAST, MAX = 16, 512
EQUAL = 128
SHORT = 32
# The upper ends of the lengths by which answers are grouped.
BANDS = (SHORT, 128, MAX)


@dataclass(frozen=True)
class Request:
    """A request: tokens of its prompt and of its answer, and when it arrives, in seconds after the first.

    `number` is its place in the trace. In a closed loop `at` is 0 and ignored.
    """

    number: int
    prompt: int
    answer: int
    at: float = 0.0


@dataclass(frozen=True)
class Load:
    """Requests of a mix: from `clients` in a closed loop, or, without clients, `rate` a second on average.

    A client sends its next request when the one before is answered. Arrivals at a rate are a Poisson process:
    no client waits for another. A `warm_up` has prompts of its own.
    """

    mix: str
    requests: int
    clients: int = 0
    rate: float = 0.0
    warm_up: bool = False

    @property
    def name(self) -> str:
        """Return its name, as in a record."""
        who = f"{self.clients} clients" if self.clients else f"{self.rate:g} requests/s"
        named = f"{self.mix}, {who}, {self.requests} requests"
        return f"warm-up: {named}" if self.warm_up else named

    @property
    def seed(self) -> str:
        """Return what its trace is drawn from."""
        return f"{SEED} {self.name}"


def _mixed(drawn: random.Random) -> int:
    return drawn.randint(LEAST, MAX)


def _equal(_: random.Random) -> int:
    return EQUAL


def _short_among_long(drawn: random.Random) -> int:
    return drawn.randint(PROMPT_LEAST, SHORT) if drawn.random() < 0.5 else drawn.randint(MAX // 2, MAX)


# How long answers are, by the name of the mix: any length alike; all 128; half up to 32, half 256 to 512.
MIXES: Mapping[str, Callable[[random.Random], int]] = {
    "mixed": _mixed,
    "equal": _equal,
    "short": _short_among_long,
}


def drawn(load: Load) -> list[Request]:
    """Return the requests of a load, in the order in which they arrive."""
    numbers = random.Random(load.seed)
    answer, at, requests = MIXES[load.mix], 0.0, []
    for number in range(load.requests):
        requests.append(Request(number, _prompt(numbers), answer(numbers), at))
        if not load.clients:
            at += numbers.expovariate(load.rate)
    return requests


def within(requests: Sequence[Request], longest: int) -> list[Request]:
    """Return the requests with answers and prompts cut to at most `longest` tokens each, for tiny models."""
    return [
        replace(each, prompt=min(each.prompt, longest), answer=min(each.answer, longest)) for each in requests
    ]


def tokens(load: Load, request: Request, below: int) -> list[int]:
    """Return the tokens of a request's prompt, each smaller than `below`."""
    return random.Random(f"{load.seed} {request.number}").choices(range(below), k=request.prompt)


def band(answer: int) -> int:
    """Return the upper end of the band of an answer's length; a longer one counts to the last band."""
    return next((limit for limit in BANDS if answer <= limit), BANDS[-1])


def band_name(limit: int) -> str:
    """Return what a band is called."""
    below = [end for end in BANDS if end < limit]
    return f"answers of {below[-1] + 1} to {limit}" if below else f"answers of up to {limit}"


def sample(count: int, of: Sequence[Request]) -> list[Request]:
    """Return `count` of the requests, evenly spread over the trace; all of them where there are fewer."""
    if count >= len(of):
        return list(of)
    return [of[number * len(of) // count] for number in range(count)]


def _prompt(numbers: random.Random) -> int:
    length = round(PROMPT_MEDIAN * numbers.lognormvariate(0, PROMPT_SIGMA))
    return min(max(length, PROMPT_LEAST), PROMPT_MAX)

"""Counts of what the service does, as Prometheus reads them (its text format, version 0.0.4).

Three counters and a gauge, of which one is touched for each request: a client library would come into the
image and its locks for some lines of text.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

_FORM = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# Paths that are counted by their name: any other one is a client's, and there is no end of those.
_PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize")
_OTHER = "other"


@dataclass
class Counted:
    """A request by the status of its answer; 0: its client did not wait for one."""

    status: int = 0


class Metrics:
    """The counts since the start."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.running = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._prompt = self._answer = 0
        # Of each path: how many took at most so long, and how long all took.
        self._within: dict[str, list[int]] = {}
        self._took: dict[str, float] = {}

    def add_tokens(self, prompt: int, answer: int) -> None:
        """Count the tokens of prompts, and those of answers."""
        self._prompt += prompt
        self._answer += answer

    @contextlib.contextmanager
    def request(self, path: str) -> Iterator[Counted]:
        """Count a request that is answered in the block, by the status that the block sets."""
        counted, start = Counted(), time.monotonic()
        self.running += 1
        try:
            yield counted
        finally:
            self.running -= 1
            self._add(path, counted.status, time.monotonic() - start)

    def _add(self, path: str, status: int, seconds: float) -> None:
        named = path if path in _PATHS else _OTHER
        self._requests[named, status] += 1
        within = self._within.setdefault(named, [0] * (len(_SECONDS) + 1))
        for at, bound in enumerate(_SECONDS):
            within[at] += seconds <= bound
        within[-1] += 1
        self._took[named] = self._took.get(named, 0.0) + seconds

    async def text(self, request: Request) -> Response:
        """Return the text that Prometheus reads."""
        return PlainTextResponse("\n".join(self._lines()) + "\n", headers={"Content-Type": _FORM})

    def _lines(self) -> Iterator[str]:
        model = f'model="{_escaped(self._model)}"'
        yield from _head("requests_running", "gauge", "requests that are being answered")
        yield f"ftbuild_front_requests_running{{{model}}} {self.running}"
        yield from _head("requests_total", "counter", "answered requests; status 0: the client left")
        for (path, status), count in sorted(self._requests.items()):
            yield f'ftbuild_front_requests_total{{{model},path="{path}",status="{status}"}} {count}'
        for name, count, what in (
            ("prompt", self._prompt, "of prompts"),
            ("generation", self._answer, "of answers"),
        ):
            yield from _head(f"{name}_tokens_total", "counter", f"tokens {what}")
            yield f"ftbuild_front_{name}_tokens_total{{{model}}} {count}"
        name = "request_duration_seconds"
        yield from _head(name, "histogram", "from a request's head to the end of its answer")
        for path, within in sorted(self._within.items()):
            labels = f'{model},path="{path}"'
            for bound, count in zip((*map(str, _SECONDS), "+Inf"), within, strict=True):
                yield f'ftbuild_front_{name}_bucket{{{labels},le="{bound}"}} {count}'
            yield f"ftbuild_front_{name}_sum{{{labels}}} {self._took[path]:.6f}"
            yield f"ftbuild_front_{name}_count{{{labels}}} {within[-1]}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP ftbuild_front_{name} {what}"
    yield f"# TYPE ftbuild_front_{name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Servers that only note when they begin and end, in place of the suite's: a plugin of pytest.

They answer nothing, so that every test fails at once. Who asks for which server, and when, can be seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import embedder, served
from ftbuild.gates.smoke.job import Job, Variant

# The file that gets a line for each server, and how many seconds each stands before its first test.
FILE, SECONDS = "FTBUILD_RECORDED_SERVERS", 0.02


@dataclass(frozen=True)
class Stay:
    """A server's time, by the clock of this machine in seconds, and the GPUs that it had.

    `within`: whether a test started it beside the server that it is about.
    """

    variant: str
    devices: tuple[int, ...]
    alone: bool
    process: int
    within: bool
    start: float
    end: float

    def overlaps(self, other: Stay) -> bool:
        """Return whether both were there at one time."""
        return self.start < other.end and other.start < self.end


def read(file: Path) -> list[Stay]:
    """Return the servers that were noted, in the order in which they ended."""
    lines = map(json.loads, file.read_text().splitlines())
    return [Stay(**{**line, "devices": tuple(line["devices"])}) for line in lines]


# The servers of this process.
_standing: list[Variant] = []


@contextlib.contextmanager
def _noted(task: Job, variant: Variant) -> Iterator[None]:
    start, within = time.monotonic(), bool(_standing)
    time.sleep(SECONDS)
    _standing.append(variant)
    try:
        yield
    finally:
        _standing.pop()
        line = {
            "variant": str(variant),
            "devices": list(task.devices(variant)),
            "alone": variant.is_alone,
            "process": os.getpid(),
            "within": within,
            "start": start,
            "end": time.monotonic(),
        }
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps(line) + "\n")


class _Mute:
    """A client that gets no answer."""

    def __getattr__(self, name: str) -> Any:
        def asked(*_: object, **__: object) -> Any:
            raise SmokeError("there is no server")

        return asked if name != "close" else lambda: None


@contextlib.contextmanager
def serving(task: Job, variant: Variant, *_: object, **__: object) -> Iterator[served.Served]:
    """Note a server of a variant that answers with tokens."""
    with _noted(task, variant):
        made = served.Served(variant, _server(), task, _Mute(), _Mute())  # type: ignore[arg-type]
        made.__dict__["clients"] = {"http": _Mute(), "grpc": _Mute()}
        yield made


@contextlib.contextmanager
def embedding(task: Job, variant: Variant) -> Iterator[embedder.Embedder]:
    """Note a server of a variant that answers with vectors."""
    with _noted(task, variant):
        made = embedder.Embedder(variant, _server(), task, _Mute())  # type: ignore[arg-type]
        made.__dict__["clients"] = {"http": _Mute(), "grpc": _Mute()}
        yield made


def _server() -> Any:
    return SimpleNamespace(alive=lambda: False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Take the place of the suite's servers, before it imports them."""
    served.serving = serving
    embedder.embedding = embedding

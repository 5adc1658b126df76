"""Servers that only note when they begin and end, in place of the suite's: a plugin of pytest.

They answer nothing, so that every test fails at once. Who asks for which server, and when, can be seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import embedder, places, served
from ftbuild.gates.smoke.job import Job, Variant

# The file that gets a line for each server, the one for each place, and how many seconds a server takes to
# get ready.
FILE, PLACES, SECONDS = "FTBUILD_RECORDED_SERVERS", "FTBUILD_RECORDED_PLACES", 0.02


@dataclass(frozen=True)
class Stay:
    """A time on GPUs, from `start` to `end` by the clock of this machine in seconds, and whose it was.

    Of a server, from its start, or, without `variant`, of the place in which it was tested. `within`: whether
    a test started the server beside the one that it is about.
    """

    devices: tuple[int, ...]
    alone: bool
    process: int
    start: float
    end: float
    variant: str = ""
    within: bool = False

    def overlaps(self, other: Stay) -> bool:
        """Return whether both were there at one time."""
        return self.start < other.end and other.start < self.end


def read(file: Path) -> list[Stay]:
    """Return the servers or places that were noted, in the order in which they ended."""
    lines = map(json.loads, file.read_text().splitlines())
    return [Stay(**{**line, "devices": tuple(line["devices"])}) for line in lines]


@contextlib.contextmanager
def _noted(variable: str, devices: Sequence[int], *, alone: bool, **more: object) -> Iterator[None]:
    """Write a stay to the file that an environment variable names, once it is over."""
    start = time.monotonic()
    try:
        yield
    finally:
        times = {"start": start, "end": time.monotonic()}
        line = {"devices": list(devices), "alone": alone, "process": os.getpid(), **times, **more}
        with Path(os.environ[variable]).open("a") as file:
            file.write(json.dumps(line) + "\n")


# The servers of this process.
_standing: list[Variant] = []


@contextlib.contextmanager
def _standing_server(task: Job, variant: Variant) -> Iterator[None]:
    within = bool(_standing)
    with _noted(FILE, task.devices(variant), alone=variant.is_alone, variant=str(variant), within=within):
        time.sleep(SECONDS)
        _standing.append(variant)
        try:
            yield
        finally:
            _standing.pop()


_held = places.held


@contextlib.contextmanager
def held(folder: Path, devices: Sequence[int], *, alone: bool) -> Iterator[None]:
    """Hold a place as the suite does, and note it."""
    with _held(folder, devices, alone=alone), _noted(PLACES, devices, alone=alone):
        yield


class _Mute:
    """A client that gets no answer."""

    def __getattr__(self, name: str) -> Any:
        def asked(*_: object, **__: object) -> Any:
            raise SmokeError("there is no server")

        return asked if name != "close" else lambda: None


@contextlib.contextmanager
def serving(task: Job, variant: Variant, *_: object, **__: object) -> Iterator[served.Served]:
    """Note a server of a variant that answers with tokens."""
    with _standing_server(task, variant):
        made = served.Served(variant, _server(), task, _Mute(), _Mute())  # type: ignore[arg-type]
        made.__dict__["clients"] = {"http": _Mute(), "grpc": _Mute()}
        yield made


@contextlib.contextmanager
def embedding(task: Job, variant: Variant) -> Iterator[embedder.Embedder]:
    """Note a server of a variant that answers with vectors."""
    with _standing_server(task, variant):
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
    places.held = held

"""A life: one start of a server or of another engine, from its start until it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

S_co = TypeVar("S_co", covariant=True)


@dataclass(frozen=True)
class Life(Generic[S_co]):
    """A side that answers, the seconds until it did, the cores that it may use (empty: unknown), settings."""

    side: S_co
    ready_seconds: float
    cores: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender(Generic[S_co]):
    """What is started again and again; `start` gets the file for its log."""

    name: str
    start: Callable[[Path], AbstractContextManager[Life[S_co]]]
    may_fail: bool = False

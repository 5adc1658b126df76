"""The benchmarks, in the order of their topics, and what each of them must offer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Protocol, cast

from benchmarks.harness.figure import Result
from benchmarks.harness.workspace import Workspace
from ftbuild.errors import ConfigError

NAMES = (
    "cold",
    "warm",
    "wall",
    "schedule",
    "memory",
    "sources",
    "images",
    "startup",
    "inference",
    "load",
    "batching",
)


class Benchmark(Protocol):
    """A module of benchmarks/topics; the first line of its docstring is its description."""

    NAME: str
    __doc__: str | None

    def needs(self, workspace: Workspace) -> str | None:
        """Return why it cannot run here, or None; take seconds at most."""

    def run(self, workspace: Workspace) -> Result:
        """Measure, and return the result."""
        ...


def chosen(names: Collection[str]) -> Iterator[Benchmark]:
    """Yield the benchmarks with these names (none: all); ConfigError for an unknown one."""
    if unknown := sorted(set(names) - set(NAMES)):
        raise ConfigError(f"benchmark {', '.join(unknown)} is unknown", hint=f"one of {', '.join(NAMES)}")
    for name in NAMES:
        if not names or name in names:
            yield cast(Benchmark, import_module(f"benchmarks.topics.{name}"))


def about(benchmark: Benchmark) -> str:
    """Return the first line of its docstring."""
    return (benchmark.__doc__ or "").partition("\n")[0]

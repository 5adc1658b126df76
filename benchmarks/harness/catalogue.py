"""The benchmarks, in the order of their topics, and what each of them must offer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Protocol, cast

from benchmarks.harness.figure import Result
from benchmarks.harness.stage import Stage
from ftbuild.errors import ConfigError

NAMES = ("cold", "warm", "wall", "schedule", "memory", "sources", "images", "startup", "inference")


class Benchmark(Protocol):
    """A module of benchmarks/topics; the first line of its docstring is its description."""

    NAME: str
    __doc__: str | None

    def needs(self, stage: Stage) -> str | None:
        """Why it cannot run here; None when it can. Takes seconds at most."""

    def run(self, stage: Stage) -> Result:
        """Measure."""
        ...


def chosen(names: Collection[str]) -> Iterator[Benchmark]:
    """The benchmarks of these names (none: all); ConfigError for an unknown one."""
    if unknown := sorted(set(names) - set(NAMES)):
        raise ConfigError(f"benchmark {', '.join(unknown)} is unknown", hint=f"one of {', '.join(NAMES)}")
    for name in NAMES:
        if not names or name in names:
            yield cast(Benchmark, import_module(f"benchmarks.topics.{name}"))


def about(benchmark: Benchmark) -> str:
    """Its one line."""
    return (benchmark.__doc__ or "").partition("\n")[0]

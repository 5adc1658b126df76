"""The benchmarks, in the order of their topics, and what each of them must offer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from benchmarks.harness.figure import Result
from ftbuild.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.harness.workspace import Workspace

NAMES = (
    "cold",
    "sms",
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
    "traffic",
)


class Benchmark(Protocol):
    """A module of benchmarks/topics; the first line of its docstring is its description.

    It may have DEFINITION, the version of how its figures are made of its data (else 1), `recomputed`, which
    takes a record and returns it with the figures of that version, and `details`, which returns Markdown that
    follows the figures.
    """

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


def definition(name: str) -> int:
    """Return the version of how a benchmark makes its figures today."""
    return getattr(_module(name), "DEFINITION", 1)


def recomputed(result: Result) -> Result:
    """Return a record with the figures that follow from its data today, if its benchmark can make them."""
    make: Callable[[Result], Result] | None = getattr(_module(result.benchmark), "recomputed", None)
    return make(result) if make else result


def details(result: Result) -> str:
    """Return what a benchmark tells of a record beyond its figures, in Markdown; empty: nothing."""
    tell: Callable[[Result], str] | None = getattr(_module(result.benchmark), "details", None)
    return tell(result) if tell else ""


def _module(name: str) -> ModuleType | None:
    """Return the module of a benchmark; None for a tool's record."""
    return import_module(f"benchmarks.topics.{name}") if name in NAMES else None


def about(benchmark: Benchmark) -> str:
    """Return the first line of its docstring."""
    return (benchmark.__doc__ or "").partition("\n")[0]

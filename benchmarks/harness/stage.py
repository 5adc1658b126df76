"""Where a benchmark works: configuration, cells, a temporary folder, and commands with the time they took."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.chart import Chart
from benchmarks.harness.figure import Figure, Machine, Result
from ftbuild.cli import selection
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.host import shell
from ftbuild.plan import Plan
from testing import ROOT
from testing.sample import command, environment

SAMPLE_CELL = "22.12-sm80"
REAL_CELL = "22.12-sm90-open"


@dataclass(frozen=True)
class Used:
    """Wall time, and CPU time of the processes that were started, in seconds.

    What BuildKit does for a command is not among its processes.
    """

    wall: float
    cpu: float


@dataclass(frozen=True)
class Timed(Used):
    """A finished command, with its output."""

    done: shell.Result


@dataclass(frozen=True)
class Stage:
    """What every benchmark of a run gets; `work` is removed at the end, when what `at_end` holds is called.

    `cell` are globs on cell ids (none: what the benchmark takes by itself), `jobs` compile jobs at a time,
    `rounds` how often what takes seconds is repeated, and `real` says that the configuration is that of the
    real sources.
    """

    config: Path
    work: Path
    jobs: int
    base: str | None = None
    cell: tuple[str, ...] = ()
    rounds: int = 5
    real: bool = False
    at_end: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)

    @property
    def trees(self) -> tuple[str, ...]:
        """What is compiled: of the real sources only the tree that upstream's recipe makes, for its time."""
        return ("backend",) if self.real else ("backend", "pyt")

    @property
    def stack(self) -> str:
        """Which sources the figures are about."""
        return "real" if self.real else "sample"

    def load(self) -> Config:
        """The configuration."""
        return loader.load(self.config)

    def plans(self, *cell: str) -> list[Plan]:
        """The plans of the selected cells; of `cell` where none was selected."""
        chosen = selection.Selection(self.config, cell=self.cell or cell, base=self.base)
        return selection.plans(self.load(), chosen)

    def plan(self) -> Plan:
        """The plan of one cell: the first selected one, else one that each stack has."""
        return self.plans(REAL_CELL if self.real else SAMPLE_CELL)[0]

    def plan_for(self, *sms: int) -> Plan:
        """The plan of an image like that cell's for other SMs."""
        cell, together = self.plan().cell, ",".join(map(str, sms))
        (plan,) = selection.plans(
            self.load(), selection.Selection(self.config, [cell.triton], [together], (), cell.base)
        )
        return plan

    def invoke(self, task: str, *arguments: str, check: bool = True, **variables: str) -> Timed:
        """One command of ours on this configuration; CommandFailed unless it ends well.

        `variables` are added to its environment.
        """
        argv = command(task, *arguments, "--config", str(self.config))
        return timed(argv, check=check, env=environment(self.work, **variables))

    def result(
        self,
        benchmark: str,
        figures: Sequence[Figure],
        data: Mapping[str, Any],
        charts: Sequence[Chart] = (),
    ) -> Result:
        """The record of a benchmark that ran here, now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Result(benchmark, self.stack, tuple(figures), Machine.here(), date, data, tuple(charts))


def timed(
    argv: Sequence[str], *, check: bool = True, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> Timed:
    """Run a command to its end."""
    used = stopwatch()
    done = shell.run(argv, cwd=cwd, env=env, check=check)
    return Timed(**vars(used()), done=done)


def stopwatch() -> Callable[[], Used]:
    """Begin to measure; the function that this gives says what was used since."""
    cpu, start = _cpu_of_children(), time.monotonic()
    return lambda: Used(time.monotonic() - start, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    """As the kernel adds it up of children that have ended, and theirs (getrusage(2))."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

"""The workspace of a benchmark: configuration, cells, a temporary folder, and timed commands."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.chart import Chart
from benchmarks.harness.figure import Figure, Machine, Result, load_now
from benchmarks.harness.origin import Measured, Origin
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
    """Wall time, and CPU time of child processes, in seconds.

    BuildKit's work for a command is not part of its processes.
    """

    wall: float
    cpu: float


@dataclass(frozen=True)
class Timed(Used):
    """A finished command with its output and times."""

    done: shell.Result


@dataclass(frozen=True)
class Workspace:
    """The workspace of all benchmarks of a run; `work` is removed at the end, after the calls in `at_end`.

    `cell` are globs on cell ids (none: the benchmark's own choice), `jobs` compile jobs at a time, `rounds`
    repetitions of quick measurements; `real` means the configuration of the real sources; `load_before` is
    the machine's load before the benchmark.
    """

    config: Path
    work: Path
    jobs: int
    base: str | None = None
    cell: tuple[str, ...] = ()
    rounds: int = 5
    real: bool = False
    at_end: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)
    load_before: float = field(default_factory=load_now, compare=False)

    @property
    def trees(self) -> tuple[str, ...]:
        """Return the compiled trees: of the real sources, to save time, only that of upstream's recipe."""
        return ("backend",) if self.real else ("backend", "pyt")

    @property
    def stack(self) -> str:
        """Return the name of the stack: real or sample."""
        return "real" if self.real else "sample"

    def load(self) -> Config:
        """Return the configuration."""
        return loader.load(self.config)

    def plans(self, *cell: str) -> list[Plan]:
        """Return the plans of the selected cells, or of `cell` if none is selected."""
        on = [self.base] if self.base else []
        chosen = selection.Selection(self.config, cell=self.cell or cell, base=on)
        return selection.plans(self.load(), chosen)

    def plan(self) -> Plan:
        """Return the plan of one cell: the first selected one, else the stack's default."""
        return self.plans(REAL_CELL if self.real else SAMPLE_CELL)[0]

    def plan_for(self, *sms: int) -> Plan:
        """Return the plan of the same cell for other SMs."""
        cell, together = self.plan().cell, ",".join(map(str, sms))
        (plan,) = selection.plans(
            self.load(), selection.Selection(self.config, [cell.triton], [together], (), [cell.base])
        )
        return plan

    def invoke(self, task: str, *arguments: str, check: bool = True, **variables: str) -> Timed:
        """Run an ftbuild command on this configuration; CommandFailed unless it succeeds.

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
        *,
        cells: Iterable[Measured] = (),
        definition: int = 1,
        subject: str = "",
    ) -> Result:
        """Return the record of a benchmark, of its `subject`, that ran here and now, of these cells.

        Its figures are of the first cell unless they name their own.
        """
        origin = Origin.here(cells)
        of = origin.cells[0].cell if origin.cells else ""
        return Result(
            benchmark,
            self.stack,
            tuple(figure.named(of) for figure in figures),
            Machine.here(self.load_before),
            datetime.now(UTC).isoformat(timespec="seconds"),
            data,
            tuple(charts),
            definition,
            origin,
            subject,
        )


def measured(plan: Plan, images: Mapping[str, str] | None = None) -> Measured:
    """Return the cell of a plan, with the ids of its images by product if they ran."""
    return Measured(plan.cell.id, plan.key, images or {})


def timed(
    argv: Sequence[str], *, check: bool = True, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> Timed:
    """Run a command and measure it."""
    used = stopwatch()
    done = shell.run(argv, cwd=cwd, env=env, check=check)
    return Timed(**vars(used()), done=done)


def stopwatch() -> Callable[[], Used]:
    """Start measuring; the returned function returns the time used since."""
    cpu, start = _cpu_of_children(), time.monotonic()
    return lambda: Used(time.monotonic() - start, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    """Return the CPU time of ended child processes and their children (getrusage(2))."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

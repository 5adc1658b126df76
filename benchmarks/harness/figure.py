"""Results of benchmarks: figures with their goals, and the record behind plots and tables."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.harness import chart
from benchmarks.harness.chart import Chart
from benchmarks.harness.origin import Origin
from ftbuild.errors import ConfigError
from ftbuild.host import files

STACKS = ("sample", "real")


class Topic(StrEnum):
    """The ten subjects of README.md, in its order."""

    COLD = "1 cold build"
    WARM = "2 warm build"
    WALL = "3 wall time"
    MEMORY = "4 memory"
    SOURCES = "5 sources"
    IMAGES = "6 images"
    STARTUP = "7 start-up"
    INFERENCE = "8 inference"
    LOAD = "9 load"
    TRAFFIC = "10 traffic"


@dataclass(frozen=True)
class Figure:
    """A number with its unit, its goal, and how it was taken.

    `topic` is one of Topic; `how` begins with measured, simulated or sampled. With `at_most` the goal is an
    upper limit, else a lower one. Bytes have the unit `B`. `of` is the cell that it is of; empty: of none.
    `least` and `most` are the ends of what was found where that is more than one number, else None.
    """

    topic: str
    what: str
    value: float
    unit: str
    goal: float | None
    how: str
    at_most: bool = True
    of: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met, at the worse end of a spread too; None if there is none."""
        if self.goal is None:
            return None
        worse = self.most if self.at_most else self.least
        judged = self.value if worse is None else worse
        return judged <= self.goal if self.at_most else judged >= self.goal

    def named(self, cell: str) -> Figure:
        """Return the figure as one of that cell, unless it is of one already."""
        return self if self.of or self.what.startswith(cell) else replace(self, of=cell)

    @property
    def name(self) -> str:
        """Return what it is, with the cell that it is of."""
        return f"{self.of}: {self.what}" if self.of else self.what


@dataclass(frozen=True)
class Machine:
    """The machine on which figures were taken; memory in bytes.

    `load_before` shows its other users. So does `load`, at the end, with the benchmark's own work. Both
    are None where files were read that something else had measured.
    """

    processor: str
    cores: int
    memory: int
    system: str
    load: float | None
    load_before: float | None = None

    @classmethod
    def here(cls, load_before: float | None = None) -> Machine:
        """Return this machine with its load of now."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(_processor(), os.cpu_count() or 1, memory, platform.platform(), load_now(), load_before)


def load_now() -> float:
    """Return the load average over one minute."""
    return round(os.getloadavg()[0], 2)


@dataclass(frozen=True)
class Result:
    """The result of one run of a benchmark; the figures follow from `data`, `charts` are its plots.

    `stack` is one of STACKS, `date` is in UTC (ISO 8601). `definition` is the version of how the figures are
    made of the data, `origin` None in records from before commits and keys were recorded. `subject` is what
    of several this record of the benchmark is of.
    """

    benchmark: str
    stack: str
    figures: tuple[Figure, ...]
    machine: Machine
    date: str
    data: Mapping[str, Any] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()
    definition: int = 1
    origin: Origin | None = None
    subject: str = ""

    @property
    def name(self) -> str:
        """Return the benchmark, with the subject."""
        return "-".join(filter(None, (self.benchmark, self.subject)))

    @property
    def plots(self) -> dict[str, Chart]:
        """Return the charts by file name."""
        return {f"{drawn.name}-{self.stack}.svg": drawn for drawn in self.charts}

    def of_files(self) -> Result:
        """Return the record without the loads, which are those of the moment in which its files were read."""
        return replace(self, machine=replace(self.machine, load=None, load_before=None))

    @property
    def file(self) -> str:
        """Return the name of the record's file."""
        return f"{self.name}-{self.stack}.json"

    def write(self, folder: Path) -> Path:
        """Write the record to `<benchmark>[-<subject>]-<stack>.json`, atomically."""
        file = folder / self.file
        files.write_atomic(file, json.dumps(asdict(self), indent=1) + "\n")
        return file

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read a record that `write` made; an older one lacks the newer fields. Else ConfigError."""
        try:
            return cls._of(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, LookupError, TypeError, AttributeError) as damage:
            hint = "measure it again, or take it from git"
            raise ConfigError(f"this is no record: {damage!r}", where=str(file), hint=hint) from damage

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Result:
        figures = tuple(Figure(**figure) for figure in values.pop("figures"))
        charts = tuple(map(chart.read, values.pop("charts")))
        machine, origin = Machine(**values.pop("machine")), values.pop("origin", None)
        return cls(
            figures=figures,
            machine=machine,
            charts=charts,
            origin=Origin.read(origin) if origin else None,
            **values,
        )


def digits(value: float) -> str:
    """Return a readable number: three digits, or a whole number from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _processor() -> str:
    """Return the processor's name from Linux (proc_cpuinfo(5)), else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

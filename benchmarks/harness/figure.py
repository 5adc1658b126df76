"""What a benchmark found: figures beside their goals, and the record that plots and tables are made from."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.harness import chart
from benchmarks.harness.chart import Chart
from ftbuild.host import files

STACKS = ("sample", "real")


class Topic(StrEnum):
    """The eight subjects of README.md, in its order."""

    COLD = "1 cold build"
    WARM = "2 warm build"
    WALL = "3 wall time"
    MEMORY = "4 memory"
    SOURCES = "5 sources"
    IMAGES = "6 images"
    STARTUP = "7 start-up"
    INFERENCE = "8 inference"


@dataclass(frozen=True)
class Figure:
    """A number with its unit, the goal that it should keep, and how it was taken.

    `topic` is one of Topic; `how` says measured, simulated or sampled, and on what. With `at_most` the goal
    is an upper limit, else a lower one. Bytes have the unit `B`.
    """

    topic: str
    what: str
    value: float
    unit: str
    goal: float | None
    how: str
    at_most: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the goal is kept; None where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


@dataclass(frozen=True)
class Machine:
    """Where figures were taken; memory in bytes."""

    processor: str
    cores: int
    memory: int
    system: str
    load: float

    @classmethod
    def here(cls) -> Machine:
        """This machine, with its load average over one minute: others may be using it."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        load, _, _ = os.getloadavg()
        return cls(_processor(), os.cpu_count() or 1, memory, platform.platform(), round(load, 2))


@dataclass(frozen=True)
class Result:
    """What one run of a benchmark found; `data` is what the figures were taken from, `charts` are its plots.

    `stack` is one of STACKS, `date` is in UTC (ISO 8601).
    """

    benchmark: str
    stack: str
    figures: tuple[Figure, ...]
    machine: Machine
    date: str
    data: Mapping[str, Any] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()

    @property
    def plots(self) -> dict[str, Chart]:
        """File name -> chart."""
        return {f"{drawn.name}-{self.stack}.svg": drawn for drawn in self.charts}

    def write(self, folder: Path) -> Path:
        """Put the record into `<benchmark>-<stack>.json`, whole or not at all."""
        file = folder / f"{self.benchmark}-{self.stack}.json"
        files.write_atomic(file, json.dumps(asdict(self), indent=1) + "\n")
        return file

    @classmethod
    def read(cls, file: Path) -> Result:
        """The record that `write` made."""
        values = json.loads(file.read_text(encoding="utf-8"))
        figures = tuple(Figure(**figure) for figure in values.pop("figures"))
        charts = tuple(map(chart.read, values.pop("charts")))
        return cls(figures=figures, machine=Machine(**values.pop("machine")), charts=charts, **values)


def digits(value: float) -> str:
    """A number as people read it: three digits, or a whole one from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _processor() -> str:
    """The processor's name as Linux gives it (proc_cpuinfo(5)), else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

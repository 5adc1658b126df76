"""Gantt charts: the steps of a nightly run, and the units of a compile on its slots.

Geometry only, in the units of an SVG that is `WIDTH` wide; the page draws it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ftbuild.nightly import ninja
from ftbuild.nightly.record import NightlyRun, Step, Unit
from ftbuild.text.units import duration

WIDTH = 1100.0
# Width of a letter of a lane's label, and of the widest label.
LETTER, LABELS = 6.6, 280.0
# Narrower bars share one: they are too small to see, and thousands of them make a page slow.
PIXEL = 1.5
_TICKS = 8
_NICE = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_KINDS = {"build": "build", "verify": "verify", "smoke": "smoke", "publish": "publish"}
_OBJECT = re.compile(r"(?:.*/)?CMakeFiles/(?P<target>[^/]+)\.dir/(?P<source>.+)\.o(?:bj)?$")


@dataclass(frozen=True)
class Bar:
    """A stretch of time; `kind` decides its colour, `title` is its tooltip, `text` is written in it."""

    x: float
    width: float
    kind: str
    title: str
    text: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Lane:
    """One row of bars."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Tick:
    """A line of the time axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A Gantt chart. `lane_height` and `bar_height` are in the SVG's units."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    left: float
    lane_height: float
    bar_height: float

    @property
    def height(self) -> float:
        """Return the height of all lanes and of the axis below them."""
        return len(self.lanes) * self.lane_height + 24

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of bars in the chart, for the legend."""
        bars = [bar for lane in self.lanes for bar in lane.bars]
        failed = ("failed",) if any(bar.failed for bar in bars) else ()
        return (*dict.fromkeys(bar.kind for bar in bars), *failed)


@dataclass(frozen=True)
class Heavy:
    """A long unit: seconds, part of the work (0 to 1), slot from 1, and its name."""

    seconds: float
    part: float
    slot: int
    name: str


@dataclass(frozen=True)
class Compile:
    """One build tree: its chart, its heaviest units, and how busy its slots were (0 to 1)."""

    chart: Chart
    heaviest: tuple[Heavy, ...]
    units: int
    slots: int
    seconds: float
    busy: float


def of_run(run: NightlyRun) -> Chart:
    """Return the chart of the cells that have steps."""
    cells = sorted((cell for cell in run.cells if cell.steps), key=lambda cell: cell.start)
    last = max((step.start + step.seconds for cell in cells for step in cell.steps), default=0.0)
    left = min(LABELS, 20 + LETTER * max((len(cell.cell) for cell in cells), default=0))
    scale = _Scale(left, max(run.seconds, last))
    lanes = (Lane(cell.cell, tuple(_step(scale, cell.cell, step) for step in cell.steps)) for cell in cells)
    return Chart(tuple(lanes), scale.ticks(), left, 26, 18)


def of_compile(units: Sequence[Unit], heaviest: int = 10) -> Compile:
    """Return the chart of a build tree's units on their slots. `units` must not be empty."""
    lanes = ninja.slots(units)
    seconds = max(unit.end for unit in units)
    work = sum(unit.end - unit.start for unit in units)
    scale, count = _Scale(24, seconds), max(lanes) + 1
    rows = [
        sorted((u for u, n in zip(units, lanes, strict=True) if n == lane), key=_start)
        for lane in range(count)
    ]
    order = sorted(zip(units, lanes, strict=True), key=lambda pair: pair[0].start - pair[0].end)[:heaviest]
    height = 16 if count <= 16 else 9
    return Compile(
        chart=Chart(
            tuple(Lane(str(n), tuple(_drawn(scale, row))) for n, row in enumerate(rows, 1)),
            scale.ticks(),
            scale.left,
            height,
            height - 2,
        ),
        heaviest=tuple(
            Heavy(u.end - u.start, (u.end - u.start) / (work or 1), n + 1, name(u.output)) for u, n in order
        ),
        units=len(units),
        slots=count,
        seconds=seconds,
        busy=work / (count * seconds or 1),
    )


def name(output: str) -> str:
    """Return source and target of an output if CMake's folders name them, else its file name."""
    match = _OBJECT.match(output)
    return f"{match['source']} ({match['target']})" if match else output.rpartition("/")[2]


def kind(output: str) -> str:
    """Return the kind of command that made the output: `cuda`, `cxx`, `link` or `other`."""
    if output.endswith((".so", ".a")) or ".so." in output or output.endswith("cmake_device_link.o"):
        return "link"
    if output.endswith(".cu.o"):
        return "cuda"
    return "cxx" if output.endswith((".cc.o", ".cpp.o", ".cxx.o", ".c.o")) else "other"


@dataclass(frozen=True)
class _Scale:
    left: float
    seconds: float

    def width(self, seconds: float) -> float:
        return round(seconds * (WIDTH - self.left - 30) / (self.seconds or 1), 1)

    def x(self, seconds: float) -> float:
        return round(self.left + self.width(seconds), 1)

    def ticks(self) -> tuple[Tick, ...]:
        step = next((nice for nice in _NICE if self.seconds / nice <= _TICKS), self.seconds / _TICKS)
        count = int(self.seconds / step) if step else 0
        return tuple(Tick(self.x(n * step), _clock(n * step)) for n in range(count + 1))


def _clock(seconds: float) -> str:
    """Return the label of a tick: `0`, `0.5 s`, `40 s`, `12 min`, `1:30 h`."""
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min" if rest else f"{minutes} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


def _start(unit: Unit) -> float:
    return unit.start


def _step(scale: _Scale, cell: str, step: Step) -> Bar:
    took = duration(step.seconds)
    ending = f", exit code {step.code}" if step.code else ""
    width = max(scale.width(step.seconds), 2.0)
    label = f"{step.name} {took}"
    text = next((text for text in (label, step.name) if width > 7.5 * len(text) + 8), "")
    title = f"{cell}: {step.name}, {took}{ending}"
    return Bar(scale.x(step.start), width, _KINDS.get(step.name, "other"), title, text, bool(step.code))


def _drawn(scale: _Scale, units: Sequence[Unit]) -> Iterator[Bar]:
    """Yield one slot's bars: consecutive short units share one."""
    short: list[Unit] = []
    for unit in units:
        is_short = scale.width(unit.end - unit.start) < PIXEL
        if short and not (is_short and scale.width(unit.start - short[-1].end) < PIXEL):
            yield _shared(scale, short)
            short = []
        if is_short:
            short.append(unit)
        else:
            yield _unit(scale, unit)
    if short:
        yield _shared(scale, short)


def _unit(scale: _Scale, unit: Unit) -> Bar:
    title = f"{duration(unit.end - unit.start)}  {name(unit.output)}"
    return Bar(scale.x(unit.start), scale.width(unit.end - unit.start), kind(unit.output), title)


def _shared(scale: _Scale, units: Sequence[Unit]) -> Bar:
    if len(units) == 1:
        (unit,) = units
        return Bar(scale.x(unit.start), PIXEL, kind(unit.output), _unit(scale, unit).title)
    first, last = units[0], units[-1]
    took = duration(sum(unit.end - unit.start for unit in units))
    width = max(scale.width(last.end - first.start), PIXEL)
    return Bar(scale.x(first.start), width, "short", f"{len(units)} short units, {took} together")

"""Charts of records as SVG files, with the same bytes for the same records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.chart import Bars, Lines
from benchmarks.harness.figure import Result, digits
from ftbuild.errors import HostError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: Any = {
    "svg.hashsalt": "ftbuild",  # ids in the file would be random
    "svg.fonttype": "none",  # text stays text, which a browser can search
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": "cycler('color', ['#3b6ea5', '#d08c3f', '#6a9f58', '#a05195', '#7f7f7f'])",
}
_LINE_STYLES = ("k:", "-o", "--s", "-.^", "-v")
_INCHES_WIDE = 7.0


def draw(results: Iterable[Result], folder: Path) -> list[Path]:
    """Write `<chart>-<stack>.svg` for every chart; HostError without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError as missing:
        raise HostError("the plots need matplotlib", hint="pip install --editable '.[bench]'") from missing
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with mpl.rc_context(_STYLE):
        for result in results:
            for name, chart in result.plots.items():
                canvas = Canvas(figsize=(_INCHES_WIDE, _height(chart)), layout="constrained")
                canvas.suptitle(f"{chart.title} ({result.stack} stack)", x=0.01, ha="left")
                axes = canvas.add_subplot()
                _bars(axes, chart) if isinstance(chart, Bars) else _lines(axes, chart)
                if len(chart.series) > 1:
                    axes.legend(frameon=False)
                files.append(folder / name)
                canvas.savefig(files[-1], metadata={"Date": None})
    return files


def _height(chart: Bars | Lines) -> float:
    """Return the height in inches, with room for each bar."""
    if isinstance(chart, Lines):
        return 4.0
    beside = 1 if chart.stacked else len(chart.series)
    return 1.3 + len(chart.labels) * (0.15 + 0.25 * beside)


def _bars(axes: Axes, chart: Bars) -> None:
    """Draw horizontal bars, the first label on top."""
    rows = range(len(chart.labels))
    thick = 0.8 if chart.stacked else 0.8 / len(chart.series)
    begin = [0.0] * len(chart.labels)
    for number, (name, values) in enumerate(chart.series.items()):
        middle = 0.0 if chart.stacked else (number - (len(chart.series) - 1) / 2) * thick
        drawn = axes.barh([row + middle for row in rows], values, thick, left=begin, label=name)
        if chart.stacked:
            begin = [old + value for old, value in zip(begin, values, strict=True)]
        else:
            axes.bar_label(drawn, fmt=digits, padding=3)
    if chart.goal is not None:
        axes.axvline(chart.goal, color="black", linewidth=0.8, linestyle="--")
        axes.annotate(" goal", (chart.goal, -0.5), annotation_clip=False, va="bottom")
    axes.set_yticks(rows, chart.labels)
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)


def _lines(axes: Axes, chart: Lines) -> None:
    """Draw curves, each in its own style, since they may coincide."""
    for (name, points), style in zip(chart.series.items(), cycle(_LINE_STYLES), strict=False):
        across, up = zip(*points, strict=True)
        axes.plot(across, up, style, label=name)
    if chart.across_by_powers:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if chart.up_by_powers:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, linewidth=0.3)
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.up)

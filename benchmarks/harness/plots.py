"""Charts of records as SVG files, with the same bytes for the same records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.chart import Bars, Chart, Lines, Span, Spans
from benchmarks.harness.figure import Result, digits
from ftbuild.errors import HostError
from ftbuild.text.reporter import to_stderr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

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
# As many of the title's characters as fit into that width: what is beyond it is cut off.
_TITLE_CHARACTERS = 80
# Of the things in a chart of spans, by their order.
_COLOURS = ("#3b6ea5", "#d08c3f", "#6a9f58", "#bbbbbb", "#1f3a57", "#a05195", "#c0504d", "#7f7f7f")


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
                title = textwrap.fill(f"{chart.title} ({result.stack} stack)", _TITLE_CHARACTERS)
                canvas.suptitle(title, x=0.01, ha="left")
                _spans(canvas, chart) if isinstance(chart, Spans) else _panel(canvas.add_subplot(), chart)
                files.append(folder / name)
                canvas.savefig(files[-1], metadata={"Date": None})
    return files


def draw_if_possible(results: Iterable[Result], folder: Path) -> None:
    """Draw the charts and say where they are, or why there are none: records are useful without them."""
    try:
        for file in draw(results, folder):
            to_stderr(f"plot: {file}")
    except HostError as missing:
        to_stderr(f"no plots: {missing}")


def _panel(axes: Axes, chart: Bars | Lines) -> None:
    """Draw a chart that has one pair of axes."""
    _bars(axes, chart) if isinstance(chart, Bars) else _lines(axes, chart)
    if len(chart.series) > 1:
        axes.legend(frameon=False)


def _height(chart: Chart) -> float:
    """Return the height in inches, with room for each bar and lane."""
    if isinstance(chart, Spans):
        return 1.5 + sum(2 * (0.6 + 0.35 * len(lanes)) for lanes in chart.panels.values())
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


def _spans(canvas: Canvas, chart: Spans) -> None:
    """Draw each panel whole and its beginning below it, then the legend of all."""
    from matplotlib.patches import Patch

    colours = dict(zip(chart.things, cycle(_COLOURS), strict=False))
    views = [
        (title if until == chart.until else f"its first {until:g} {chart.across}", lanes, until)
        for title, lanes in chart.panels.items()
        for until in (chart.until, chart.zoom)
    ]
    every = canvas.subplots(len(views), 1, squeeze=False)[:, 0]
    for axes, (title, lanes, until) in zip(every, views, strict=True):
        _lanes(axes, lanes, colours)
        axes.set_xlim(0, until)
        axes.set_title(title, loc="left", fontsize=8)
    every[-1].set_xlabel(chart.across)
    patches = [Patch(color=colour, label=thing) for thing, colour in colours.items()]
    canvas.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)


def _lanes(axes: Axes, lanes: Mapping[str, Sequence[Span]], colours: Mapping[str, str]) -> None:
    """Draw the spans of each lane, the first lane on top, without edges, which would widen them."""
    for row, spans in enumerate(lanes.values()):
        ranges = [(start, length) for start, length, _ in spans]
        filled = [colours[thing] for _, _, thing in spans]
        axes.broken_barh(ranges, (row - 0.4, 0.8), facecolors=filled, linewidth=0)
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.set_ylim(len(lanes) - 0.5, -0.5)

"""Print profiles, and write their record with pictures; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from benchmarks.harness import origin, plots
from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Topic
from benchmarks.harness.workspace import Workspace
from benchmarks.tools import profile
from benchmarks.tools.profile import steps, timeline
from benchmarks.tools.profile.steps import Drawn, Step

NAME = "profile"
# The name of a trace that was given none.
ONLY = "a step"
SHOWN = 12


def figures(step: Step, of: str) -> Iterator[Figure]:
    """Yield the length of a step, its share without work for the GPU, and how much is launched in it."""
    how = f"measured with CUPTI, median of {step.steps} steps"
    yield Figure(Topic.INFERENCE, f"{of}: one step of decoding", step.duration / 1e9, "s", None, how)
    idle = 1 - step.busy / step.duration
    yield Figure(Topic.INFERENCE, f"{of}: share of a step in which the GPU waits", idle, "", None, how)
    launched = sum(step.counts.get(name, 0) for name in step.gpu)
    yield Figure(Topic.INFERENCE, f"{of}: kernels, copies and fills in a step", launched, "", None, how)
    called = _called(step)
    yield Figure(Topic.INFERENCE, f"{of}: calls of the CUDA runtime in a step", called, "", None, how)


def chart(steps: Mapping[str, Step], of: str) -> Bars:
    """Return the picture: microseconds of a step by what they were spent on, as in the first trace."""
    first = next(iter(steps.values()))
    names = list(islice(first.gpu, SHOWN))
    series = {name: tuple(_spent(step, names)) for name, step in steps.items()}
    labels = (*names, "all other kernels", "GPU waits")
    return Bars(NAME, f"One step of decoding, {of}", "microseconds", labels, series)


def title(name: str, step: Step) -> str:
    """Return the line above a step in the picture."""
    of = "" if name == ONLY else f"{name}: "
    return (
        f"{of}the median step takes {step.duration / 1000:.0f} us, in {step.busy / 1000:.0f} of which the "
        f"GPU works; {_called(step):.0f} calls of the CUDA runtime"
    )


def text(step: Step) -> Iterator[str]:
    """Yield the lines of the table: microseconds and number in a step."""
    yield f"step {step.duration / 1000:10.1f} us, GPU busy {step.busy / 1000:.1f} us, {step.steps} steps"
    for title, spent in (("on the GPU", step.gpu), ("calls", step.calls)):
        yield f"{title}:"
        for name, nanoseconds in islice(spent.items(), 2 * SHOWN):
            yield f"  {nanoseconds / 1000:9.1f} us {step.counts[name]:7.1f} x  {name}"


def _called(step: Step) -> float:
    return sum(step.counts.get(name, 0) for name in step.calls)


def _spent(step: Step, names: list[str]) -> Iterator[float]:
    shown = [step.gpu.get(name, 0.0) for name in names]
    for nanoseconds in (*shown, sum(step.gpu.values()) - sum(shown), step.duration - step.busy):
        yield round(nanoseconds / 1000, 2)


def _read(trace: Path, layers: int, marker: str) -> tuple[Step, Drawn] | None:
    """Return the median step of a trace and one to draw; None where it has no two steps."""
    with trace.open(encoding="utf-8", errors="replace") as lines:
        rows = steps.read(lines)
    median, drawn = steps.median_step(rows, layers, marker), steps.typical_step(rows, layers, marker)
    return None if median is None or drawn is None else (median, drawn)


def _named(argument: str) -> tuple[str, Path]:
    """Parse `TRACE` or `NAME=TRACE`, for argparse."""
    name, equals, trace = argument.partition("=")
    path = Path(trace if equals else argument)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{path}: there is no such file")
    return (name if equals else ONLY), path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=profile.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=_named, metavar="[NAME=]TRACE")
    parser.add_argument("--layers", type=int, required=True, help="of the model")
    parser.add_argument("--marker", default=steps.MARKER, help="kernel of each layer (%(default)s)")
    parser.add_argument("--of", required=True, help="cell, model and GPU, which the trace does not name")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    origin.add_option(parser)
    return parser


def main() -> int:
    """Return the exit code."""
    parser = _parser()
    options = parser.parse_args()
    traces = dict(options.traces)
    if len(traces) < len(options.traces):
        parser.error("each of several traces needs a name of its own, NAME=TRACE")
    steps: dict[str, Step] = {}
    drawn: dict[str, Drawn] = {}
    for name, trace in traces.items():
        read = _read(trace, options.layers, options.marker)
        if read is None:
            print(f"error: {trace} has no two steps with {options.marker}", file=sys.stderr)
            return 2
        steps[name], drawn[name] = read
        print("\n".join([*([] if name == ONLY else [f"{name}:"]), *text(steps[name])]))
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    result = workspace.result(
        NAME,
        [
            figure
            for name, step in steps.items()
            for figure in figures(step, options.of if name == ONLY else f"{options.of}, {name}")
        ],
        {name: asdict(step) for name, step in steps.items()},
        [
            timeline.chart(drawn, {name: title(name, step) for name, step in steps.items()}, options.of),
            chart(steps, options.of),
        ],
        cells=tuple(options.cell),
    ).of_files()
    print(result.write(options.out))
    plots.draw_if_possible([result], options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

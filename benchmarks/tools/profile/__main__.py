"""Print a profile, and write its record with a picture; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace
from benchmarks.tools import profile
from benchmarks.tools.profile import steps
from benchmarks.tools.profile.steps import Step

NAME = "profile"
SHOWN = 12


def figures(step: Step, of: str) -> Iterator[Figure]:
    """Yield the length of a step, its share without work for the GPU, and how much is launched in it."""
    how = f"measured with CUPTI, median of {step.steps} steps"
    yield Figure(Topic.INFERENCE, f"{of}: one step of decoding", step.duration / 1e9, "s", None, how)
    idle = 1 - step.busy / step.duration
    yield Figure(Topic.INFERENCE, f"{of}: share of a step in which the GPU waits", idle, "", None, how)
    launched = sum(step.counts.get(name, 0) for name in step.gpu)
    yield Figure(Topic.INFERENCE, f"{of}: kernels, copies and fills in a step", launched, "", None, how)
    called = sum(step.counts.get(name, 0) for name in step.calls)
    yield Figure(Topic.INFERENCE, f"{of}: calls of the CUDA runtime in a step", called, "", None, how)


def chart(step: Step, of: str) -> Bars:
    """Return the picture: microseconds of a step by what they were spent on."""
    first = dict(islice(step.gpu.items(), SHOWN))
    rest = sum(step.gpu.values()) - sum(first.values())
    spent = {**first, "all other kernels": rest, "GPU waits": step.duration - step.busy}
    values = tuple(round(nanoseconds / 1000, 2) for nanoseconds in spent.values())
    return Bars(NAME, f"One step of decoding, {of}", "microseconds", tuple(spent), {"a step": values})


def text(step: Step) -> Iterator[str]:
    """Yield the lines of the table: microseconds and number in a step."""
    yield f"step {step.duration / 1000:10.1f} us, GPU busy {step.busy / 1000:.1f} us, {step.steps} steps"
    for title, spent in (("on the GPU", step.gpu), ("calls", step.calls)):
        yield f"{title}:"
        for name, nanoseconds in islice(spent.items(), 2 * SHOWN):
            yield f"  {nanoseconds / 1000:9.1f} us {step.counts[name]:7.1f} x  {name}"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(
        description=profile.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--layers", type=int, required=True, help="of the model")
    parser.add_argument("--marker", default=steps.MARKER, help="kernel of each layer (%(default)s)")
    parser.add_argument("--of", required=True, help="cell, model and GPU, which the trace does not name")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    with options.trace.open(encoding="utf-8", errors="replace") as lines:
        step = steps.median_step(steps.read(lines), options.layers, options.marker)
    if step is None:
        print(f"error: {options.trace} has no two steps with {options.marker}", file=sys.stderr)
        return 2
    print("\n".join(text(step)))
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    found = [chart(step, options.of)]
    result: Result = workspace.result(NAME, list(figures(step, options.of)), asdict(step), found)
    print(result.write(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The picture of steps: what the host called, and what the GPU did meanwhile, to one scale. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.harness.chart import Span, Spans
from benchmarks.tools.profile.steps import Drawn, Row, short

NAME = "timeline"
HOST, GPU = "host", "GPU"
LAUNCH, GRAPH = f"{HOST}: launches a kernel", f"{HOST}: launches a graph"
WAIT, OTHER_CALL = f"{HOST}: waits for the GPU", f"{HOST}: another call"
PRODUCT, ATTENTION = f"{GPU}: matrix product", f"{GPU}: attention"
OTHER_KERNEL, COPY = f"{GPU}: another kernel", f"{GPU}: copy or fill"
THINGS = (LAUNCH, GRAPH, WAIT, OTHER_CALL, PRODUCT, ATTENTION, OTHER_KERNEL, COPY)
# The part of the longest step that is drawn enlarged.
ZOOM = 10
# cuBLAS's and CUTLASS's kernels, with the reductions of those that split the inner dimension.
_PRODUCT = re.compile(r"gemm|gemv|splitk|nvjet|xmma", re.I)
_CUTLASS = "cutlass::"
_CALLS = (
    (re.compile(r"cudaGraphLaunch"), GRAPH),
    (re.compile(r"cudaLaunch"), LAUNCH),
    (re.compile(r"Synchronize"), WAIT),
)


def thing(row: Row) -> str:
    """Return which of THINGS a row is."""
    if row.kind == "call":
        return next((is_ for called, is_ in _CALLS if called.search(row.name)), OTHER_CALL)
    if row.kind != "kernel":
        return COPY
    name = short(row.name)
    if "attention" in name:
        return ATTENTION
    return PRODUCT if _PRODUCT.search(name) or _CUTLASS in row.name else OTHER_KERNEL


def chart(steps: Mapping[str, Drawn], titles: Mapping[str, str], of: str) -> Spans:
    """Return the picture of one step of each trace, with the title of each."""
    until = max(step.end - step.start for step in steps.values()) / 1000
    panels = {
        titles[name]: {HOST: _spans(step.calls, step), GPU: _spans(step.gpu, step)}
        for name, step in steps.items()
    }
    title = f"One step of decoding, {of}; white: nothing runs"
    return Spans(NAME, title, "microseconds", panels, THINGS, round(until, 2), float(f"{until / ZOOM:.2g}"))


def _spans(rows: Sequence[Row], step: Drawn) -> tuple[Span, ...]:
    """Return the rows in microseconds since the step began, cut where they are longer than the step."""
    cut = ((max(row.start, step.start), min(row.end, step.end), thing(row)) for row in rows)
    return tuple(
        (round((start - step.start) / 1000, 2), round((end - start) / 1000, 2), is_)
        for start, end, is_ in cut
    )

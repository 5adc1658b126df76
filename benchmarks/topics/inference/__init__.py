"""Inference on a GPU: tokens per second of an image against transformers, time to ready, variants.

On a machine without the project's own packages: python -m benchmarks.topics.inference --help
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness.figure import Result
    from benchmarks.harness.workspace import Workspace

NAME = "inference"
CELL = "22.12-sm90-open"
LAYOUT = "gpt"
# 2: rates and ratios are those of all starts of a server, and the goal is judged by the slowest.
# 3: prompts of several lengths, first tokens, and the limit of the GPU's memory.
DEFINITION = 3
_MODULES = ("numpy", "torch", "transformers", "tritonclient")


def needs(workspace: Workspace) -> str | None:
    """Require both images of a cell, a GPU for the runtime image, and transformers in this Python."""
    from ftbuild.engine import daemon, gpu
    from ftbuild.errors import FtbuildError

    if not workspace.real:
        return "the sample's models do not compute on a GPU (--real)"
    if missing := lacking():
        return missing
    try:
        client, plan = daemon.connect(), workspace.plans(CELL)[0]
        for product in ("runtime", "sdk"):
            if daemon.image(client, plan.tag(product)) is None:
                return f"there is no image {plan.tag(product)}"
        return None if gpu.find(client, plan.tag("runtime")) else "no container gets a GPU"
    except FtbuildError as failure:
        return failure.what


def lacking(*more: str) -> str | None:
    """Return the packages that this Python lacks for a measurement that needs `more`, or None."""
    missing = [name for name in (*_MODULES, *more) if find_spec(name) is None]
    return f"{sys.executable} lacks {', '.join(missing)}" if missing else None


def run(workspace: Workspace) -> Result:
    """Measure the image of the selected cell as it is served."""
    from benchmarks.harness.workspace import measured
    from benchmarks.topics.inference import job, report, server
    from benchmarks.topics.inference.measure import Workload
    from benchmarks.topics.inference.models.gpt import Shape
    from ftbuild.engine import daemon, gpu
    from ftbuild.models import config_pbtxt, repository

    client, plan = daemon.connect(), workspace.plans(CELL)[0]
    access = gpu.find(client, plan.tag("runtime"))
    assert access is not None, "needs() comes first"
    place = server.Place(workspace.work / "model", server.INSIDE)
    outcome = job.run(
        job.Job(
            launcher=server.Image(place, plan.tag("runtime"), access.style),
            template=repository.templates(client, plan.tag("sdk"), LAYOUT)[config_pbtxt.MODEL],
            out=workspace.work / "logs",
            variants=(server.SHIPPED,),
            shape=Shape(),
            workload=Workload(runs=workspace.rounds),
        )
    )
    data = report.data(outcome)
    image = str(client.images.get(plan.tag("runtime")).id)
    return workspace.result(
        NAME,
        list(report.figures(data)),
        data,
        report.charts(data),
        cells=[measured(plan, {"runtime": image})],
        definition=DEFINITION,
        subject=data["family"],
    )


def recomputed(result: Result) -> Result:
    """Return the record with the figures that follow from its data today."""
    from benchmarks.topics.inference import report

    figures, drawn = tuple(report.figures(result.data)), tuple(report.charts(result.data))
    return replace(result, figures=figures, charts=drawn, definition=DEFINITION)


def details(result: Result) -> str:
    """Return a record's rates as a table in Markdown."""
    from benchmarks.harness import table
    from benchmarks.topics.inference import report

    return f"{report.title(result.data)}:\n\n{table.grid(*report.table(result.data))}"

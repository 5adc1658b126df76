"""What `invoke dev.bench` runs: the image of a cell on a GPU, or a rehearsal on the sample's server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.origin import Measured
from benchmarks.harness.workspace import SAMPLE_CELL, measured
from benchmarks.topics import inference
from benchmarks.topics.inference import server
from benchmarks.topics.inference.job import tensors
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.models.gptj import Shape
from benchmarks.topics.traffic import DEFINITION, NAME, job, record, report
from benchmarks.topics.traffic.job import Job
from benchmarks.topics.traffic.measure import Plan, measure
from benchmarks.topics.traffic.sides import Side, Triton
from benchmarks.topics.traffic.trace import Load
from ftbuild.models import config_pbtxt, repository

if TYPE_CHECKING:
    from benchmarks.harness.figure import Result
    from benchmarks.harness.workspace import Workspace

LOADS = (Load("mixed", 256, 32), Load("short", 384, 64))
# The sample computes next to nothing, so it stands some hundred requests a second.
REHEARSED = (Load("mixed", 64, 8), Load("short", 64, 16), Load("mixed", 50, rate=50))
CHECKED = 16
# It takes 1024 tokens with the prompt.
LONGEST = 200
FAMILY = "gpt"
# Of the sample's rule for answers without weights: bytes, then a start and an end, then nothing.
BYTES, NEVER = 256, 300


def real(workspace: Workspace) -> Result:
    """Measure GPT-J's size in the cell's image."""
    from ftbuild.engine import daemon, gpu

    client, plan = daemon.connect(), workspace.plans(inference.CELL)[0]
    access = gpu.find(client, plan.tag("runtime"))
    assert access is not None, "needs() comes first"
    shape = Shape()
    description = Job(
        launcher=server.Image(
            server.Place(workspace.work / "model", server.INSIDE), plan.tag("runtime"), access.style
        ),
        template=repository.templates(client, plan.tag("sdk"), shape.family)[config_pbtxt.MODEL],
        out=workspace.work / "logs",
        variants=(server.SHIPPED,),
        shape=shape,
        plan=Plan(LOADS, shape.end),
    )
    data = record.data(job.run(description, lambda _: None))
    image = str(client.images.get(plan.tag("runtime")).id)
    return _result(workspace, data, measured(plan, {"runtime": image}))


def sample(workspace: Workspace) -> Result:
    """Send loads to the sample's server, which needs no GPU: what is shown is that everything works."""
    from ftbuild.engine import daemon

    cell = workspace.plans(SAMPLE_CELL)[0]
    workspace.invoke("build", "--cell", cell.cell.id)
    client = daemon.connect()
    template = repository.templates(client, cell.tag("sdk"), FAMILY)[config_pbtxt.MODEL]
    result = rehearse(cell.tag("runtime"), template, workspace.work)
    image = str(client.images.get(cell.tag("runtime")).id)
    return _result(workspace, result, measured(cell, {"runtime": image}))


def rehearse(image: str, template: str, work: Path) -> dict[str, Any]:
    """Return the data of all kinds of loads on the sample's server, which answers by its rule."""
    filled = config_pbtxt.fill_template(template, tensor_para=1, data_type="fp32", decoupled=True)
    nothing, models = work / "without-weights", work / "models"
    nothing.mkdir()
    config_pbtxt.write(models, filled, nothing)
    plan = Plan(REHEARSED, BYTES, CHECKED, LONGEST)
    contender = Contender(server.SHIPPED.name, partial(_rehearsed, image, models))
    sessions, failures = measure([contender], plan, work, 1, None, lambda _: None)
    about = {
        "gpu": "CPU",
        "model": "the sample's rule",
        "family": FAMILY,
        "parameters": 0,
        "data_type": "fp32",
        "streamed": True,
        "ours": contender.name,
    }
    return record.described(about, plan, sessions, failures)


@contextlib.contextmanager
def _rehearsed(image: str, models: Path, _: Path) -> Iterator[Life[Side]]:
    from ftbuild.client import server_container

    with server_container.serve(image, models) as running:
        side = Triton(running.grpc, tensors(FAMILY), streamed=True, never=NEVER)
        yield Life(side, running.ready_seconds)


def _result(workspace: Workspace, of: dict[str, Any], cell: Measured) -> Result:
    figures, charts = list(report.figures(of)), report.charts(of)
    subject = of["family"]
    return workspace.result(NAME, figures, of, charts, cells=[cell], definition=DEFINITION, subject=subject)

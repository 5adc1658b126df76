"""GPT with a mixture of experts on every real image of this machine that its GPU runs and that serves one.

The models are small and random; their tokens must be those of FasterTransformer's formulas, in
tests/upstream/ft_gpt.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ftbuild.client.golden import Expected
from ftbuild.client.tensors import TensorSchema
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError
from ftbuild.gates.smoke import gate, served
from ftbuild.gates.smoke.job import Job, Variant
from ftbuild.models import config_ini, config_pbtxt, repository
from ftbuild.models.gpu_memory import COMPUTES_INT8
from ftbuild.plan import Plan
from testing import ROOT, expert_gpt
from testing.expert_gpt import EXAMPLES, LENGTH, PROMPTS, Example
from tests.gpu import test_smoke
from tests.upstream.ft_gpt import Gpt

FAMILY = "gpt"
VARIANTS = [
    (name, dtype, gpus)
    for name, example in EXAMPLES.items()
    for dtype in example.dtypes
    for gpus in ((1,) if example.int8 else (1, 2))  # half the inner size of that one is not a multiple of 64
]
# Answers until the second one is asked for with the buffers and the graphs of the first.
ROUNDS = 3


@dataclass(frozen=True)
class Cell:
    """A cell with images here: its template of GPT, and the job of its runtime image."""

    plan: Plan
    template: str
    job: Job


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    plans = [plan for plan in test_smoke.plans_that_run() if plan.takes("ft", repository.EXPERTS)]
    if not plans:
        pytest.skip(f"no image here has {repository.EXPERTS} and runs on this GPU")
    return [cell(plan) for plan in plans]


def cell(plan: Plan) -> Cell:
    client = daemon.connect()
    try:
        template = repository.templates(client, plan.tag("sdk"), FAMILY)[config_pbtxt.MODEL]
    except ConfigError as missing:
        pytest.skip(f"needs the SDK image of {plan.cell.id}: {missing.what}")
    access = gate.find_gpus(client, plan)
    models = gate.tested_models(loader.load(ROOT / "buildcfg"), plan, access.gpus)
    image = gate.image_id(client, plan, "runtime")
    return Cell(plan, template, Job(image, Path(), models, access.style, [str(g) for g in access.gpus]))


def expected(example: Example, weights: Path) -> Expected:
    """The answers to all prompts, to be asked for at once, and to each."""
    model = Gpt(weights, int8=example.int8)
    rows = [model.answer(prompt, LENGTH) for prompt in PROMPTS]
    cases = {"all": rows, **{str(number): [row] for number, row in enumerate(rows)}}
    shape = example.shape
    return Expected(shape.vocabulary, shape.vocabulary - 1, shape.layers, shape.positions, cases)


def check(cell: Cell, example: Example, variant: Variant, folder: Path) -> None:
    """Serve an example, and compare the answers to its prompts, together and one by one, several times."""
    found = expert_gpt.model(example.shape, example.seed)
    weights = expert_gpt.write(folder / "weights", example.shape, found, variant.tensor_para)
    text = config_pbtxt.fill_template(
        cell.template,
        model=config_ini.read(weights),
        tensor_para=variant.tensor_para,
        data_type=COMPUTES_INT8 if example.int8 else variant.dtype,
        int8=example.int8,
    )
    models = folder / "models"
    config_pbtxt.write(models, text, weights)
    tensors = cell.job.models[FAMILY].tensors
    assert tensors
    schema = TensorSchema(tensors, config_pbtxt.inputs(cell.template))
    with served.start(cell.job, variant, models) as running:
        model = served.Served(variant, running, cell.job, schema, expected(example, weights))
        for _ in range(ROUNDS):
            model.check("all", model.ask(list(PROMPTS), LENGTH))
            for number, prompt in enumerate(PROMPTS):
                model.check(str(number), model.ask([prompt], LENGTH))
        model.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "dtype", "gpus"), VARIANTS)
def test_tokens_are_those_of_the_formulas(
    cells: Sequence[Cell], name: str, dtype: str, gpus: int, tmp_path: Path
) -> None:
    variant = Variant(FAMILY, dtype, gpus)
    lacks = [why for cell in cells if (why := cell.job.lacks(variant))]
    able = [cell for cell in cells if not cell.job.lacks(variant)]
    able = [cell for cell in able if cell.job.variants([FAMILY], [dtype])]
    if not able:
        pytest.skip("; ".join(lacks) or f"no image here computes GPT in {dtype}")
    for cell in able:
        check(cell, EXAMPLES[name], variant, tmp_path / cell.plan.cell.id)

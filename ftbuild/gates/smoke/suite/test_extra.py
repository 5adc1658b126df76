"""Extra models (models.yaml): they show the epsilon of norms, sizes of a head, a serial residual, and mT5."""

from __future__ import annotations

import pytest

from ftbuild.gates.smoke.embedder import Embedder
from ftbuild.gates.smoke.job import DTYPES
from ftbuild.gates.smoke.served import Served, prompts


@pytest.mark.variants(dtypes=("fp32",), extra=("*",))
@pytest.mark.variants(dtypes=DTYPES[1:], extra=("*-head-*",))
@pytest.mark.variants(dtypes=("fp32",), extra=("gptneox-serial",), tensor_para=2)
def test_answers_are_those_of_transformers(served: Served) -> None:
    for case in [case for case in ("one", "eight", "long") if case in served.expected.cases]:
        served.check(case, served.ask(prompts(case), runtime_top_k=1))


@pytest.mark.variants(dtypes=("fp32",), extra=("*",))
def test_embeddings_are_those_of_transformers(embedder: Embedder) -> None:
    embedder.check("eight", embedder.ask(prompts("eight")))

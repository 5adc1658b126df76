"""Vectors of families that answer with them: the reference's, whatever comes with them in a batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ftbuild.client import vectors
from ftbuild.client.connection import Client, Refused
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.embedder import Embedder
from ftbuild.gates.smoke.served import prompts
from ftbuild.models import ensemble
from ftbuild.models.vector_models import IDS, LENGTHS

REPEATS = 5
AT_ONCE, REQUESTS = 8, 40
Arrays = dict[str, "np.ndarray[Any, Any]"]


@pytest.mark.parametrize("case", ["one", "eight", "long"])
def test_answers_equal_the_references(embedder: Embedder, client: Client, case: str) -> None:
    embedder.check(case, embedder.ask(prompts(case), client=client))


@pytest.mark.variants(dtypes=("fp32",), tensor_para=2)
def test_several_gpus_answer_as_one(embedder: Embedder) -> None:
    embedder.check("eight", embedder.ask(prompts("eight")))


def test_the_longest_text_is_answered(embedder: Embedder) -> None:
    longest = [token % embedder.expected.vocab_size for token in range(embedder.expected.max_length)]
    (row,) = embedder.ask([longest]).tolist()
    if not abs(sum(number * number for number in row) - 1) < 0.01:
        raise SmokeError(
            f"{embedder.variant}: the embedding of {len(longest)} tokens does not have the length 1"
        )


def unknown_token(embedder: Embedder, request: Arrays) -> Arrays:
    return {**request, IDS: np.full_like(request[IDS], embedder.expected.vocab_size)}


def length_beyond_its_row(embedder: Embedder, request: Arrays) -> Arrays:
    return {**request, LENGTHS: request[LENGTHS] + 100}


def no_token(embedder: Embedder, request: Arrays) -> Arrays:
    return {**request, LENGTHS: np.zeros_like(request[LENGTHS])}


def too_long(embedder: Embedder, request: Arrays) -> Arrays:
    return vectors.request([[1] * (embedder.expected.max_length + 1)])


@pytest.mark.variants(dtypes=("fp32",))
@pytest.mark.parametrize("spoil", [unknown_token, length_beyond_its_row, no_token, too_long])
def test_a_wrong_request_is_refused_and_the_next_is_answered(
    embedder: Embedder, client: Client, spoil: Any
) -> None:
    try:
        client.infer(ensemble.ENSEMBLE, spoil(embedder, vectors.request(prompts("one"))))
    except Refused as refused:
        if not embedder.server.alive():
            raise SmokeError(
                f"the server ended ({refused.what}); its log:\n    {embedder.server.log_excerpt()}"
            ) from refused
    else:
        raise SmokeError(f"a request with {spoil.__name__.replace('_', ' ')} was answered")
    embedder.check("one", embedder.ask(prompts("one"), client=client))


def test_many_clients_get_the_answers_that_they_get_alone(embedder: Embedder) -> None:
    def ask(number: int) -> None:
        client = embedder.connect("grpc")
        case = ("one", "eight")[number % 2]
        try:
            for _ in range(REQUESTS):
                embedder.check(case, embedder.ask(prompts(case), client=client))
        finally:
            client.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(ask, range(AT_ONCE)))


def test_figures(embedder: Embedder, record_property: Callable[[str, object], None]) -> None:
    start = time.monotonic()
    for _ in range(REPEATS):
        vectors = embedder.ask(prompts("eight"))
    seconds = time.monotonic() - start
    record_property("ready_seconds", round(embedder.server.ready_seconds, 2))
    record_property("vectors_per_second", round(REPEATS * len(vectors) / seconds))
    if embedder.on_gpu:
        record_property("gpu_memory_bytes", embedder.gpu_memory())

"""Wrong requests, which a server must refuse and survive, and several at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ftbuild.client import golden
from ftbuild.client.connection import Client, Refused
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.served import Served, prompts
from ftbuild.models import config_pbtxt

Arrays = dict[str, "np.ndarray[Any, Any]"]


def unknown_input(served: Served, request: Arrays) -> Arrays:
    return {**request, "no_such_input": np.zeros((1, 1), np.uint32)}


def wrong_type(served: Served, request: Arrays) -> Arrays:
    name = served.dialect.tensors.prompt
    return {**request, name: request[name].astype(np.float32)}


def unknown_token(served: Served, request: Arrays) -> Arrays:
    name = served.dialect.tensors.prompt
    return {**request, name: np.full_like(request[name], served.expected.vocab_size)}


def prompt_longer_than_its_row(served: Served, request: Arrays) -> Arrays:
    name = served.dialect.tensors.prompt_length
    return {**request, name: request[name] + 100}


def too_long(served: Served, request: Arrays) -> Arrays:
    if served.expected.max_length is None:
        pytest.skip(f"{served.variant.model} computes its positions, so none is the last")
    name = served.dialect.tensors.answer_length
    return {**request, name: np.full_like(request[name], served.expected.max_length)}


def no_length_of_the_answer(served: Served, request: Arrays) -> Arrays:
    name = served.dialect.tensors.answer_length
    return {**request, name: request[name][:, :0]}


@pytest.mark.variants(dtypes=("fp32",))
@pytest.mark.parametrize(
    "spoil",
    [
        unknown_input,
        wrong_type,
        unknown_token,
        prompt_longer_than_its_row,
        too_long,
        no_length_of_the_answer,
    ],
)
def test_a_wrong_request_is_refused_and_the_next_is_answered(
    served: Served, client: Client, spoil: Any
) -> None:
    request = spoil(served, served.dialect.request(prompts("one"), golden.LENGTH, runtime_top_k=1))
    try:
        client.infer(config_pbtxt.MODEL, request)
    except Refused as refused:
        if not served.server.alive():
            raise SmokeError(
                f"the server ended ({refused.what}); its log:\n    {served.server.log_excerpt()}",
                hint="one user's mistake must not end the server for all: patches/backend",
            ) from refused
    else:
        raise SmokeError(
            f"a request with {spoil.__name__.replace('_', ' ')} was answered",
            hint="the backend reads memory that is not the request's: patches/ft, patches/backend",
        )
    served.check("one", served.ask(prompts("one"), client=client, runtime_top_k=1))


def test_two_requests_at_once_are_both_right(served: Served) -> None:
    def ask(case: str) -> list[list[int]]:
        client = served.connect("grpc")
        try:
            return served.ask(prompts(case), client=client, runtime_top_k=1)
        finally:
            client.close()

    cases = ("one", "eight")
    with ThreadPoolExecutor(len(cases)) as pool:
        for case, answers in zip(cases, pool.map(ask, cases), strict=True):
            served.check(case, answers)

"""Many clients at once, a quarter of whose requests is refused: each gets the answer that it gets alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ftbuild.client import golden
from ftbuild.client.connection import Refused, Unanswered
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.suite.conftest import Served, prompts
from ftbuild.models import config_pbtxt

CLIENTS = 16
REQUESTS_ON_GPU, REQUESTS_ON_CPU = 64, 8
BAD_SHARE = 0.25


def _one_client(served: Served, number: int) -> list[str]:
    """Send a client's requests, and return what was wrong."""
    chance, client = random.Random(number), served.connect("grpc")
    rows = list(zip(prompts("eight"), served.expected.cases["eight"], strict=True))
    wrong = []
    try:
        for _ in range(REQUESTS_ON_GPU if served.on_gpu else REQUESTS_ON_CPU):
            prompt, row = chance.choice(rows)
            if chance.random() < BAD_SHARE:
                asked = served.dialect.request([prompt], golden.LENGTH, runtime_top_k=1)
                name = served.dialect.tensors.prompt
                bad = {**asked, name: np.full_like(asked[name], served.expected.vocab_size)}
                try:
                    client.infer(config_pbtxt.MODEL, bad)
                except Unanswered:
                    raise
                except Refused:
                    continue
                wrong.append("a token outside the vocabulary was computed")
                continue
            (tokens,) = served.ask([prompt], client=client, runtime_top_k=1)
            if difference := golden.mismatch(row, tokens, served.tolerance):
                wrong.append(difference)
    finally:
        client.close()
    return wrong


def test_many_clients_get_the_answers_that_they_get_alone(served: Served) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = [pool.submit(_one_client, served, number) for number in range(CLIENTS)]
        wrong = [difference for client in found for difference in client.result()]
    if wrong:
        raise SmokeError(
            f"{served.variant} answers {len(wrong)} requests of {CLIENTS} clients wrong: {wrong[0]}",
            hint="a request changes the answers of its neighbours in a batch: patches/backend",
        )

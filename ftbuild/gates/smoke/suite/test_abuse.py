"""Hundreds of malformed requests from a seed: each is refused or answered, and the next good one is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import triton_to_np_dtype

from ftbuild.client import golden
from ftbuild.client.connection import Refused, Unanswered
from ftbuild.client.tensors import BAD_WORDS, STOP_WORDS
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import settings
from ftbuild.gates.smoke.memory import check_memory
from ftbuild.gates.smoke.served import Numbers, Served, prompts
from ftbuild.models import config_pbtxt

Arrays = dict[str, "np.ndarray[Any, Any]"]
Spoil = Callable[[random.Random, Served, Arrays], Arrays]

# For each variant.
REQUESTS = Numbers(on_gpu=500, over_gpus=200, on_cpu=25)
# Requests between two looks at the memory, as each look starts a process in the container.
LOOK_EVERY = 20
CASES = ("one", "eight")
INTEGERS = (0, 1, 5, 10, 64, 65, 1024, 1025, 5000, 100_000, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
FLOATS = (float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e-38, 0.5, 1.0, 2.0, 1e30, -1e30)
INTEGER_OPTIONS = (
    "runtime_top_k",
    "beam_width",
    "start_id",
    "end_id",
    "random_seed",
    "min_length",
    "memory_len",
    "prompt_learning_task_name_ids",
    "request_prompt_type",
    "request_prompt_lengths",
    "top_p_reset_ids",
    "ia3_tasks",
)
FLOAT_OPTIONS = (
    "runtime_top_p",
    "temperature",
    "len_penalty",
    "repetition_penalty",
    "presence_penalty",
    "beam_search_diversity_rate",
    "top_p_decay",
    "top_p_min",
)


def spoil_tokens(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    name = served.dialect.tensors.prompt
    values = request[name].copy()
    values.flat[chance.randrange(values.size)] = chance.choice([*INTEGERS, served.expected.vocab_size])
    return {**request, name: values}


def spoil_length(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    tensors = served.dialect.tensors
    name = chance.choice([tensors.prompt_length, tensors.answer_length])
    values = request[name].copy()
    values.flat[chance.randrange(values.size)] = chance.choice(INTEGERS)
    return {**request, name: values}


def spoil_integer(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    return _option(served, request, _known_option(chance, served, INTEGER_OPTIONS), chance.choice(INTEGERS))


def spoil_float(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    changed = _option(served, request, _known_option(chance, served, FLOAT_OPTIONS), chance.choice(FLOATS))
    return _option(served, changed, "beam_width", chance.choice([1, 1, 2, 4]))


def spoil_words(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    name = chance.choice([STOP_WORDS, BAD_WORDS])
    if not served.dialect.takes(name):
        return spoil_tokens(chance, served, request)
    width = chance.choice([1, 2, 5])
    odd = (-(2**31), -2, -1, 0, 1, width, width + 1, 1000, served.expected.vocab_size, 2**31 - 1)
    rows = len(request[served.dialect.tensors.prompt])
    values = [[[chance.choice(odd) for _ in range(width)] for _ in range(2)] for _ in range(rows)]
    return {**request, name: np.array(values, np.int32)}


def spoil_shape(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    name = chance.choice(sorted(request))
    values = request[name]
    shapes = [values[:0], values[:, :0], values[..., np.newaxis], np.concatenate([values, values]), values[0]]
    return {**request, name: chance.choice(shapes)}


def spoil_inputs(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    left_out = chance.choice(sorted(request))
    return {name: values for name, values in request.items() if name != left_out}


def spoil_prompt_embedding(chance: random.Random, served: Served, request: Arrays) -> Arrays:
    name = "request_prompt_embedding"
    if not served.dialect.takes(name):
        return spoil_integer(chance, served, request)
    rows = len(request[served.dialect.tensors.prompt])
    shape = (rows, chance.choice([1, 3, 200]), chance.choice([1, 8, 16, 32, 64, 1000]))
    values = np.zeros(shape, triton_to_np_dtype(served.dialect.inputs[name]))
    changed = {**request, name: values}
    return _option(served, changed, "request_prompt_lengths", chance.choice(INTEGERS))


SPOILS: tuple[Spoil, ...] = (
    spoil_tokens,
    spoil_length,
    spoil_integer,
    spoil_integer,
    spoil_float,
    spoil_float,
    spoil_words,
    spoil_shape,
    spoil_inputs,
    spoil_prompt_embedding,
)
LAST = (spoil_shape, spoil_inputs)


def _known_option(chance: random.Random, served: Served, names: tuple[str, ...]) -> str:
    return chance.choice([name for name in names if served.dialect.takes(name)])


def _option(served: Served, request: Arrays, name: str, value: float) -> Arrays:
    if not served.dialect.takes(name):
        return request
    rows = len(request[served.dialect.tensors.prompt])
    dtype = triton_to_np_dtype(served.dialect.inputs[name])
    return {**request, name: np.full((rows, 1), value).astype(dtype)}


def _spoiled(chance: random.Random, served: Served) -> tuple[list[str], Arrays]:
    request = served.dialect.request(prompts(chance.choice(CASES)), golden.LENGTH, runtime_top_k=1)
    # The others need all inputs in their own shapes.
    chosen = sorted(chance.sample(SPOILS, chance.choice([1, 1, 2])), key=lambda spoil: spoil in LAST)
    for spoil in chosen:
        request = spoil(chance, served, request)
    return [spoil.__name__ for spoil in chosen], request


@pytest.mark.variants
@pytest.mark.over_gpus
def test_malformed_requests_leave_the_server_to_the_others(served: Served) -> None:
    seed = settings.seed()
    chance = random.Random(f"{seed} {served.variant}")
    refused, before = 0, served.gpu_memory()
    count = settings.malformed_requests() or REQUESTS.at(served)
    for number in range(count):
        if number % LOOK_EVERY == 0:
            check_memory(before, served.gpu_memory(), f"{number} requests of seed {seed} to {served.variant}")
        names, request = _spoiled(chance, served)
        description = f"request {number} of seed {seed} ({', '.join(names)})"
        try:
            served.clients["grpc"].infer(config_pbtxt.MODEL, request)
        except Unanswered as silent:
            raise SmokeError(
                f"no answer to {description}: {silent.what}; "
                f"the server's log:\n    {served.server.log_excerpt()}",
                hint="one request must not hold the server from the others: patches/backend",
            ) from silent
        except Refused:
            refused += 1
        except (IndexError, ValueError):
            continue  # the client itself does not send such a shape
        if not served.server.alive():
            raise SmokeError(
                f"the server ended after {description}; its log:\n    {served.server.log_excerpt()}",
                hint="one user's mistake must not end the server for all: patches/backend",
            )
        try:
            served.check("one", served.ask(prompts("one"), client=served.clients["grpc"], runtime_top_k=1))
        except SmokeError as poisoned:
            raise SmokeError(
                f"after {description}: {poisoned.what}",
                hint="a malformed request spoils later answers: patches/backend, patches/ft",
            ) from poisoned
    check_memory(before, served.gpu_memory(), f"{count} requests of seed {seed} to {served.variant}")
    assert refused, "none of these requests was refused"

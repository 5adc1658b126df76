"""What the miniature answers, where the smoke suite does not look: each row's own options, words, streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ftbuild.client import server_container
from ftbuild.client.connection import Client
from ftbuild.models import config_pbtxt
from ftbuild.plan import Plan
from testing import ROOT

UPSTREAM = ROOT / "sample" / "upstream"
CONVERTER = "examples.pytorch.gpt.utils.huggingface_gpt_convert"
CONFIG = UPSTREAM / "fastertransformer_backend/base/all_models/gpt/fastertransformer/config.pbtxt"
RANKS = 2
# The second prompt is shorter than its row.
PROMPTS = [[1, 2, 3], [7, 9]]
WIDTH = 3
PADDING = 0
LENGTH = 8

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]


@pytest.fixture(scope="module")
def greedy(reference: ModuleType) -> list[Any]:
    """What the reference answers to each prompt."""
    checkpoint = reference.make()
    return [reference.greedy(checkpoint, prompt[-1], LENGTH) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def model(built: Plan, reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A connection to a converted GPT that streams its answers."""
    folder = tmp_path_factory.mktemp("sample")
    reference.write(reference.make(), "gpt", folder / "checkpoint")
    command = [sys.executable, "-B", "-m", CONVERTER, "-i", str(folder / "checkpoint"), "-o", str(folder)]
    subprocess.run([*command, "-i_g", str(RANKS)], cwd=UPSTREAM / "FasterTransformer" / "base", check=True)
    config = config_pbtxt.fill_template(
        CONFIG.read_text(), tensor_para=RANKS, data_type="fp32", decoupled=True
    )
    config_pbtxt.write(folder / "models", config, folder / f"{RANKS}-gpu")
    with server_container.serve(built.tag("runtime"), folder / "models") as running:
        # From a container beside it, the server is reached at the engine's address.
        assert running.http.startswith("127.0.0.1:") or Path("/.dockerenv").exists()
        client = Client(running.grpc, "grpc")
        yield client
        client.close()


def stream(model: Client, **options: Array) -> list[Outputs]:
    """All responses to one request with both prompts."""
    padded = [[*prompt, *[PADDING] * (WIDTH - len(prompt))] for prompt in PROMPTS]
    inputs = {
        "input_ids": np.array(padded, np.uint32),
        "input_lengths": rows(np.uint32, *map(len, PROMPTS)),
        "request_output_len": rows(np.uint32, LENGTH, LENGTH),
        "is_return_log_probs": rows(np.bool_, True, True),
    }
    return list(model.stream(config_pbtxt.MODEL, {**inputs, **options}))


def rows(dtype: Any, *values: float) -> Array:
    """An option with a value for each row."""
    return np.array(values, dtype).reshape(-1, 1)


def words(*listed: Sequence[Sequence[int]]) -> Array:
    """Each row's words: their tokens one after the other, and where each of them ends, filled up with -1."""
    width = max(sum(map(len, row)) for row in listed)
    result = np.full((len(listed), 2, width), -1, np.int32)
    for tokens_and_ends, row in zip(result, listed, strict=True):
        tokens = [token for word in row for token in word]
        tokens_and_ends[0, : len(tokens)] = tokens
        tokens_and_ends[1, : len(row)] = np.cumsum([len(word) for word in row])
    return result


def answers(outputs: Outputs) -> list[list[int]]:
    """What was generated for each row."""
    lengths = outputs["sequence_length"][:, 0] - WIDTH
    return [
        row[0, len(prompt) : len(prompt) + length].tolist()
        for row, prompt, length in zip(outputs["output_ids"], PROMPTS, lengths, strict=True)
    ]


def test_a_stream_has_one_response_for_each_token(model: Client, greedy: list[Any]) -> None:
    responses = stream(model)
    for step, outputs in enumerate(responses, start=1):
        assert answers(outputs) == [row.tokens[:step] for row in greedy]
        assert outputs["sequence_length"].tolist() == [[WIDTH + step]] * 2
        wanted = [[sum(row.log_probs[:step])] for row in greedy]
        np.testing.assert_allclose(outputs["cum_log_probs"], wanted, rtol=1e-5)
    assert len(responses) == LENGTH
    # FasterTransformer takes the k best tokens for all there are, so a greedy choice is certain.
    assert not responses[-1]["output_log_probs"].any()


def test_each_row_ends_with_its_own_stop_word(
    model: Client, greedy: list[Any], reference: ModuleType
) -> None:
    first, second = (row.tokens for row in greedy)
    listed = words([first[4:6], [reference.START_ID]], [second[1:2]])
    responses = stream(model, stop_words_list=listed)
    assert answers(responses[-1]) == [first[:6], second[:2]]
    assert len(responses) == 6
    assert set(responses[-1]["output_ids"][0, 0, WIDTH + 6 :]) == {reference.END_ID}


def test_the_last_token_of_a_bad_word_is_left_out_only_after_the_others(
    model: Client, greedy: list[Any]
) -> None:
    first, second = (row.tokens for row in greedy)
    # The word of the second row begins in its padding, as all of the row counts.
    listed = words([first[2:4]], [[PADDING, second[0]]])
    one, other = answers(stream(model, bad_words_list=listed)[-1])
    assert one[:4] == [*first[:3], greedy[0].runner_up[3]]
    assert other[0] == greedy[1].runner_up[0]


def test_a_row_samples_with_its_own_seed_and_options(model: Client, greedy: list[Any]) -> None:
    def sample(seed: int, **options: Array) -> list[list[int]]:
        return answers(stream(model, random_seed=rows(np.uint64, seed, 2**40), **options)[-1])

    top_k = rows(np.uint32, 8, 1)
    samples = [sample(seed, runtime_top_k=top_k)[0] for seed in range(4)]
    assert samples == [sample(seed, runtime_top_k=top_k)[0] for seed in range(4)]
    assert len(set(map(tuple, samples))) > 1
    greedy_tokens = [row.tokens for row in greedy]
    assert sample(3, runtime_top_k=top_k)[1] == greedy_tokens[1]
    assert sample(3, runtime_top_p=rows(np.float32, 1, 1e-6))[1] == greedy_tokens[1]
    assert sample(3, runtime_top_p=rows(np.float32, 1, 1)) != greedy_tokens
    cold = rows(np.float32, 1e-4, 1e-4)
    assert sample(3, runtime_top_k=rows(np.uint32, 8, 8), temperature=cold) == greedy_tokens

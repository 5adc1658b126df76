"""lm_eval's log-likelihoods through the OpenAI front are those of transformers for the same weights.

The server is a stand-in with FasterTransformer's rules (testing/rated_server.py); what it computes of a text
are the logits of a GPT-2 of transformers.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from testing import bytelevel, rated_server
from testing.front import NAME, front
from tests.engine.ftserve.clients import environments
from tests.engine.ftserve.clients.table import CLIENTS, HERE
from tests.upstream.conversions import TorchWorker

# Wide apart, so that some tokens are likely and others are not.
VOCABULARY = 258
GPT2 = {
    "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY, "bos_token_id": 256,
    "eos_token_id": 257, "initializer_range": 0.4,
}  # fmt: skip
# Contexts and several ends of each, as a task of multiple choice has them.
PAIRS = [
    (context, continuation)
    for context in ("The cat sat on", "Q: 2 + 2?\nA:", "\u00e9t\u00e9")
    for continuation in (" the mat.", " a zqx!", " 4", " \u00e0 la mer")
]
NEAR = 1e-3


def row(context: str, continuation: str) -> list[int]:
    return [*context.encode(), *continuation.encode()]


@pytest.fixture
def known(worker: TorchWorker, tmp_path: Path) -> dict[tuple[int, ...], np.ndarray]:
    """The logits after every beginning of every text, by transformers."""
    folder, file = tmp_path / "gpt2", tmp_path / "logits.npy"
    worker("draw", "GPT2LMHeadModel", "GPT2Config", json.dumps(GPT2), str(folder))
    found = {}
    for pair in PAIRS:
        ids = row(*pair)
        worker("logits", str(folder), json.dumps(ids), str(file))
        for size, logits in enumerate(np.load(file), 1):
            found[tuple(ids[:size])] = logits
    return found


def likelihood(
    known: dict[tuple[int, ...], np.ndarray], context: str, continuation: str
) -> tuple[float, bool]:
    """The sum of the log-probabilities of a continuation, and whether each of its tokens is the best one."""
    ids, start = row(context, continuation), len(context.encode())
    whole, best = 0.0, True
    for place in range(start, len(ids)):
        logits = known[tuple(ids[:place])].astype(np.float64)
        rates = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        whole += rates[ids[place]]
        best = best and int(rates.argmax()) == ids[place]
    return whole, best


@pytest.mark.timeout(900)
def test_lm_eval_gets_transformers_log_likelihoods(
    known: dict[tuple[int, ...], np.ndarray], tmp_path: Path
) -> None:
    def logits(before: Sequence[int]) -> np.ndarray:
        return known[tuple(map(int, before))]

    (lm_eval,) = (client for client in CLIENTS if client.name == "lm_eval")
    python = environments.program(lm_eval)[0]
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    with (
        rated_server.serve(logits, VOCABULARY) as (_, address),
        front(address, tokenizer, tmp_path / "log") as asked,
    ):
        done = subprocess.run(
            [python, str(HERE / "programs" / "lm_eval_rates.py"), f"{asked.url}/v1", NAME, json.dumps(PAIRS)],
            env={**os.environ, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = [likelihood(known, *pair) for pair in PAIRS]
    assert [best for _, best in found] == [best for _, best in wanted]
    apart = max(abs(rate - other) for (rate, _), (other, _) in zip(found, wanted, strict=True))
    assert apart < NEAR
    print(f"at most {apart:.1e} apart, of {wanted[0][0]:.3f}")

#!/usr/bin/env python3
"""A tiny Hugging Face checkpoint for the miniature FasterTransformer, and its expected answers.

    python3 reference.py FAMILY FOLDER CASES.json ANSWERS.json

writes the checkpoint into FOLDER, reads {"cases": {NAME: {"prompts": [[TOKEN, ...], ...], "length": N}}} and
writes the answers of a greedy decoder to each prompt with at most N tokens. A case may have several "beams":
the miniature's best one is greedy too. Needs only Python, and no other file.

All weights are small integers, in the last matrix divided by a power of two, so every sum is exact in any
order and precision, and tokens can be compared one by one for fp32 and fp16 and for any number of ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Matrix = list[list[float]]

VOCAB_SIZE = 258  # 256 bytes, start, end
START_ID, END_ID = 256, 257
POSITIONS = 512
HEADS, HEAD_SIZE, LAYERS = 2, 8, 2
HIDDEN = HEADS * HEAD_SIZE
# With this seed no two tokens tie for the best, and greedy answers take a dozen tokens to repeat themselves.
SEED = 11
# Brings the distances between logits to about one, so that sampling has a choice.
LM_HEAD_SCALE = 1 / 1024
FAMILIES = ("gpt", "mpt", "gptj", "gptneox", "t5")


@dataclass(frozen=True)
class Checkpoint:
    """The miniature's weights: tables are [token][hidden], layers [in][out]."""

    table: Matrix
    layers: tuple[Matrix, ...]
    lm_head: Matrix


@dataclass(frozen=True)
class Row:
    """The answer to a prompt; for each step also the second best token and its distance."""

    tokens: list[int]
    log_probs: list[float]
    runner_up: list[int]
    gap: list[float]


def make(seed: int = SEED) -> Checkpoint:
    """Return weights drawn from `seed`, the same on every machine."""
    draw = random.Random(seed)

    def matrix(rows: int, largest: int, scale: float = 1) -> Matrix:
        return [[draw.randint(-largest, largest) * scale for _ in range(HIDDEN)] for _ in range(rows)]

    return Checkpoint(
        table=matrix(VOCAB_SIZE, 2),
        layers=tuple(matrix(HIDDEN, 1) for _ in range(LAYERS)),
        lm_head=matrix(VOCAB_SIZE, 64, LM_HEAD_SCALE),
    )


def logits(checkpoint: Checkpoint, last: int) -> list[float]:
    """Return the logits of all tokens after `last`: the miniature looks at no other token."""
    x = checkpoint.table[last]
    for layer in checkpoint.layers:
        x = [old + _dot(x, column) for old, column in zip(x, zip(*layer, strict=True), strict=True)]
    return [_dot(x, row) for row in checkpoint.lm_head]


def greedy(checkpoint: Checkpoint, last: int, length: int, end_id: int = END_ID) -> Row:
    """Return at most `length` tokens after `last`, up to `end_id`; of equally good ones the lowest."""
    row = Row([], [], [], [])
    while len(row.tokens) < length and (not row.tokens or last != end_id):
        scores = logits(checkpoint, last)
        last, second = sorted(range(VOCAB_SIZE), key=lambda token: (-scores[token], token))[:2]
        row.tokens.append(last)
        row.log_probs.append(-math.log(math.fsum(math.exp(score - scores[last]) for score in scores)))
        row.runner_up.append(second)
        row.gap.append(scores[last] - scores[second])
    return row


def answers(checkpoint: Checkpoint, family: str, cases: dict[str, Any]) -> dict[str, object]:
    """Return the facts about the model, and the rows of all cases."""
    return {
        "vocab_size": VOCAB_SIZE,
        "end_id": END_ID,
        "start_id": START_ID,
        "max_length": POSITIONS if family in ("gpt", "mpt") else None,
        "layers": LAYERS,
        "cases": {
            name: [vars(greedy(checkpoint, prompt[-1], case["length"])) for prompt in case["prompts"]]
            for name, case in cases.items()
        },
    }


def write(checkpoint: Checkpoint, family: str, folder: Path) -> None:
    """Write `config.json` and `model.safetensors` as Hugging Face's models of this family have them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(family), indent=2) + "\n")
    header: dict[str, object] = {}
    data = b""
    for name, matrix in _tensors(checkpoint, family).items():
        values = [value for row in matrix for value in row]
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": [len(matrix), len(matrix[0])],
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _config(family: str) -> dict[str, object]:
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": START_ID, "eos_token_id": END_ID}
    gpt2 = {**common, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS}
    return {
        "gpt": {"model_type": "gpt2", **gpt2},
        "mpt": {
            "model_type": "mpt",
            **common,
            "d_model": HIDDEN,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_seq_len": POSITIONS,
        },
        "gptj": {"model_type": "gptj", **gpt2, "rotary_dim": 4},
        "gptneox": {
            "model_type": "gpt_neox",
            **common,
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": POSITIONS,
            "use_parallel_residual": True,
        },
        "t5": {
            "model_type": "t5",
            "vocab_size": VOCAB_SIZE,
            "eos_token_id": END_ID,
            "decoder_start_token_id": START_ID,
            "d_model": HIDDEN,
            "num_layers": LAYERS,
            "num_heads": HEADS,
        },
    }[family]


def _tensors(checkpoint: Checkpoint, family: str) -> dict[str, Matrix]:
    table, layer, lm_head = {
        "gpt": ("transformer.wte.weight", "transformer.h.{}.mlp.c_proj.weight", "lm_head.weight"),
        "mpt": ("transformer.wte.weight", "transformer.blocks.{}.ffn.down_proj.weight", "lm_head.weight"),
        "gptj": ("transformer.wte.weight", "transformer.h.{}.mlp.fc_out.weight", "lm_head.weight"),
        "gptneox": (
            "gpt_neox.embed_in.weight",
            "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight",
            "embed_out.weight",
        ),
        "t5": ("shared.weight", "decoder.block.{}.layer.2.DenseReluDense.wo.weight", "lm_head.weight"),
    }[family]
    # GPT-2 alone stores its layers [in][out].
    layers = [
        matrix if family == "gpt" else [list(column) for column in zip(*matrix, strict=True)]
        for matrix in checkpoint.layers
    ]
    return {
        table: checkpoint.table,
        **{layer.format(number): matrix for number, matrix in enumerate(layers)},
        lm_head: checkpoint.lm_head,
    }


def main() -> None:
    """Write one checkpoint, and the answers to the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("answers", type=Path)
    options = parser.parse_args()
    checkpoint = make()
    write(checkpoint, options.family, options.folder)
    cases = json.loads(options.cases.read_text())["cases"]
    options.answers.write_text(json.dumps(answers(checkpoint, options.family, cases)) + "\n")


if __name__ == "__main__":
    main()

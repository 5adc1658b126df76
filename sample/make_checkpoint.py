#!/usr/bin/env python3
"""Makes a tiny Hugging Face checkpoint for the miniature FasterTransformer, and says what it must answer.

All weights are small integers, so every sum is exact in any order and precision: the tokens of the server can
be compared with those of `greedy` one by one, for fp32 and fp16 and for any number of ranks.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Matrix = list[list[int]]

VOCAB_SIZE = 258  # 256 bytes, start, end
START_ID, END_ID = 256, 257
FAMILIES = ("gpt", "gptj", "gptneox", "t5")


@dataclass(frozen=True)
class Checkpoint:
    """The miniature's weights: tables are [token][hidden], layers [in][out]."""

    heads: int
    table: Matrix
    layers: tuple[Matrix, ...]
    lm_head: Matrix


def make(seed: int = 1, layers: int = 2, heads: int = 2, head_size: int = 8) -> Checkpoint:
    """Weights drawn from `seed`; the same on every machine."""
    draw = random.Random(seed)
    hidden = heads * head_size

    def matrix(rows: int, largest: int) -> Matrix:
        return [[draw.randint(-largest, largest) for _ in range(hidden)] for _ in range(rows)]

    return Checkpoint(
        heads=heads,
        table=matrix(VOCAB_SIZE, 2),
        layers=tuple(matrix(hidden, 1) for _ in range(layers)),
        lm_head=matrix(VOCAB_SIZE, 2),
    )


def greedy(checkpoint: Checkpoint | None, last: int, length: int, end_id: int = END_ID) -> list[int]:
    """The tokens that follow `last`, at most `length`; without a checkpoint, by the built-in rule."""
    tokens: list[int] = []
    while len(tokens) < length and (not tokens or last != end_id):
        last = _next(checkpoint, last)
        tokens.append(last)
    return tokens


def write(checkpoint: Checkpoint, family: str, folder: Path) -> None:
    """Write `config.json` and `model.safetensors` as Hugging Face's models of this family have them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(checkpoint, family), indent=2) + "\n")
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


def _next(checkpoint: Checkpoint | None, last: int) -> int:
    if checkpoint is None:
        return (5 * last + 7) % VOCAB_SIZE
    x = checkpoint.table[last]
    for layer in checkpoint.layers:
        x = [old + _dot(x, column) for old, column in zip(x, zip(*layer, strict=True), strict=True)]
    logits = [_dot(x, row) for row in checkpoint.lm_head]
    return logits.index(max(logits))


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _config(checkpoint: Checkpoint, family: str) -> dict[str, object]:
    hidden, layers, heads = len(checkpoint.table[0]), len(checkpoint.layers), checkpoint.heads
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": START_ID, "eos_token_id": END_ID}
    gpt2 = {**common, "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 128}
    return {
        "gpt": {"model_type": "gpt2", **gpt2},
        "gptj": {"model_type": "gptj", **gpt2, "rotary_dim": 4},
        "gptneox": {
            "model_type": "gpt_neox",
            **common,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "max_position_embeddings": 128,
            "use_parallel_residual": True,
        },
        "t5": {
            "model_type": "t5",
            "vocab_size": VOCAB_SIZE,
            "eos_token_id": END_ID,
            "decoder_start_token_id": START_ID,
            "d_model": hidden,
            "num_layers": layers,
            "num_heads": heads,
        },
    }[family]


def _tensors(checkpoint: Checkpoint, family: str) -> dict[str, Matrix]:
    table, layer, lm_head = {
        "gpt": ("transformer.wte.weight", "transformer.h.{}.mlp.c_proj.weight", "lm_head.weight"),
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
    """Write one checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", choices=FAMILIES, default="gpt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    write(make(options.seed, options.layers), options.family, options.folder)


if __name__ == "__main__":
    main()

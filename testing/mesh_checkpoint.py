"""Small GPT-J checkpoints in two formats: as Mesh Transformer JAX shards them, and as Hugging Face has them.

The first is made as jax and haiku make it, from nested dictionaries with haiku's names: mesh-transformer-jax
layers.py (what each core holds), transformer_shard.py (the names), checkpoint.py, write_ckpt (the files).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
CORES, PIECES = 8, 16
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SETTINGS: Mapping[str, Any] = {
    "model_type": "gptj", "n_layer": 2, "n_head": 8, "n_embd": 256, "rotary_dim": 4, "vocab_size": 48,
    "bos_token_id": 46, "eos_token_id": 47,
}  # fmt: skip
# haiku numbers a module's layers in the order in which __init__ makes them (layers.py).
LINEAR = ("attn.q_proj", "attn.v_proj", "attn.k_proj", "attn.out_proj", "mlp.fc_in", "mlp.fc_out")
# The others are split by columns.
BY_ROWS = ("table", ".attn.out_proj", ".mlp.fc_out")


def write(
    folder: Path,
    settings: Mapping[str, Any] = SETTINGS,
    data_type: np.dtype[Any] = BFLOAT16,
    *,
    configured: bool = True,
    optimizer: bool = False,
) -> dict[str, Array]:
    """Write a random checkpoint into `folder`; return its tensors in fp32, by Hugging Face's names.

    All numbers and all sums of them are exact in `data_type`.
    """
    maker = _Maker(np.random.default_rng(3), data_type)
    params, tensors = maker.model(settings)
    for core in range(CORES):
        state: dict[str, Any] = {"params": _of_core(params, core), "step": np.array(7, np.int32)}
        if optimizer:
            state["opt_state"] = [np.array(0, np.int32), state["params"]]
        leaves = list(_flat(state))
        place = folder / f"shard_{core}"
        place.mkdir(parents=True)
        for piece, arrays in enumerate(np.array_split(np.arange(len(leaves)), PIECES)):
            np.savez(place / f"{piece}.npz", *(leaves[number] for number in arrays))
    if configured:
        (folder / "config.json").write_text(json.dumps(settings))
    return tensors


def write_huggingface(folder: Path, tensors: Mapping[str, Array], settings: Mapping[str, Any]) -> None:
    """Write the same checkpoint as config.json and model.safetensors, in fp32."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [end, end := end + 4 * array.size],
        }
    text = json.dumps(header).encode()
    content = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for array in tensors.values())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(settings)))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content)


class _Maker:
    """Draws the arrays of all cores, [core, ...], and what they are together."""

    def __init__(self, draw: np.random.Generator, data_type: np.dtype[Any]) -> None:
        self._draw, self._type = draw, data_type

    def model(self, settings: Mapping[str, Any]) -> tuple[dict[str, dict[str, Array]], dict[str, Array]]:
        hidden, vocabulary, inner = settings["n_embd"], settings["vocab_size"], 4 * settings["n_embd"]
        params: dict[str, dict[str, Array]] = {}
        found: dict[str, Array] = {}
        root = "causal_transformer_shard/~/"

        def linear(module: str, name: str, rows: int, columns: int, bias: str | None) -> None:
            params[module], matrix = {}, self._numbers(rows, columns)
            params[module]["w"] = self._split(matrix, 0 if name.endswith(BY_ROWS) else 1)
            found[f"{name}.weight"] = matrix.T
            if bias == "shared":
                params[module]["b"], found[f"{name}.bias"] = self._shares(columns)
            elif bias == "split":
                found[f"{name}.bias"] = self._numbers(columns)
                params[module]["b"] = self._split(found[f"{name}.bias"], 0)

        def norm(module: str, name: str) -> None:
            params[module] = {}
            for key, kind, others in (("scale", "weight", 1), ("offset", "bias", 0)):
                first = found[f"{name}.{kind}"] = self._numbers(hidden)
                cores = np.full((CORES, hidden), others, self._type)  # as they were before the training
                cores[0] = first
                params[module][key] = cores

        linear(f"{root}embedding_shard/~/linear", "table", vocabulary, hidden, "shared")
        for layer in range(settings["n_layer"]):
            of = f"{root}layer_{layer}/~/"
            shapes = [(hidden, hidden)] * 4 + [(hidden, inner), (inner, hidden)]
            biases = [None] * 4 + ["split", "shared"]
            for number, (name, shape, bias) in enumerate(zip(LINEAR, shapes, biases, strict=True)):
                module = f"{of}linear_{number}" if number else f"{of}linear"
                linear(module, f"transformer.h.{layer}.{name}", *shape, bias)
            norm(f"{of}replicated_layer_norm", f"transformer.h.{layer}.ln_1")
        linear(f"{root}projection_shard/~/linear", "lm_head", hidden, vocabulary, "split")
        norm(f"{root}projection_shard/~/replicated_layer_norm", "transformer.ln_f")
        found["transformer.wte.weight"] = found.pop("table.weight").T + found.pop("table.bias")
        return params, found

    def _numbers(self, *shape: int) -> Array:
        return self._draw.integers(-120, 120, shape).astype(np.float32) / 64

    def _split(self, array: Array, axis: int) -> Array:
        return np.stack(np.split(array, CORES, axis)).astype(self._type)

    def _shares(self, size: int) -> tuple[Array, Array]:
        shares = self._numbers(CORES, size)
        return shares.astype(self._type), shares.sum(axis=0)


def _of_core(tree: Mapping[str, Any], core: int) -> dict[str, Any]:
    return {
        key: value[core] if isinstance(value, np.ndarray) else _of_core(value, core)
        for key, value in tree.items()
    }


def _flat(tree: object) -> Iterator[Array]:
    """Yield the leaves as jax.tree_flatten does: dictionaries by their sorted keys."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from _flat(tree[key])
    elif isinstance(tree, list):
        for each in tree:
            yield from _flat(each)
    else:
        assert isinstance(tree, np.ndarray)
        yield tree

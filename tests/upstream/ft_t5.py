"""FasterTransformer's T5 in numpy: the formulas of its kernels, over converted files, as patched.

Paths are below src/fastertransformer of v5.3, the epsilon's keys are those of patches/ft/0492.
"""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = {"fp32": np.float32, "fp16": np.float16}
TRUE = ("1", "true", "yes", "on")
MAX_DISTANCE = 128  # triton_backend/t5/T5TritonModel.cc:163


class T5:
    """A model of a folder `1-gpu`."""

    def __init__(self, folder: Path) -> None:
        self._ini = configparser.ConfigParser(interpolation=None)
        self._ini.read(folder / "config.ini")
        self._folder, decoder = folder, self._ini["decoder"]
        self._heads, self._size = int(decoder["num_heads"]), int(decoder["d_kv"])
        self._hidden, self._inner = int(decoder["d_model"]), int(decoder["d_ff"])
        self._gated = self._ini.getboolean("structure", "use_gated_activation", fallback=False)

    def states(self, ids: list[int]) -> Array:
        """The encoder's last states of a prompt."""
        x = self._table()[ids]
        bias = self._distances("encoder", len(ids))
        for layer in range(int(self._ini["encoder"]["num_layers"])):
            of = f"encoder.block.{layer}.layer."
            normed = self._norm(f"{of}0.layer_norm", x)
            q, k, v = (self._projected(f"{of}0.SelfAttention.{name}", normed) for name in "qkv")
            x = x + self._attention(f"{of}0.SelfAttention.", q, k, v, bias)
            x = x + self._feed_forward(f"{of}1.", x)
        return self._norm("encoder.final_layer_norm", x)

    def logits(self, ids: list[int], answer: list[int]) -> Array:
        """The logits after each token of an answer to a prompt."""
        states, x = self.states(ids), self._table()[answer]
        causal = np.where(np.tri(len(answer), dtype=bool), 0, -np.inf)
        bias = self._distances("decoder", len(answer)) + causal
        for layer in range(int(self._ini["decoder"]["num_layers"])):
            of = f"decoder.block.{layer}.layer."
            normed = self._norm(f"{of}0.layer_norm", x)
            local = self._heads * self._size
            fused = normed @ self._file(f"{of}0.SelfAttention.qkv.weight.0", self._hidden, 3 * local)
            q, k, v = (part.reshape(len(x), self._heads, -1) for part in np.split(fused, 3, axis=-1))
            x = x + self._attention(f"{of}0.SelfAttention.", q, k, v, bias)
            q = self._projected(f"{of}1.EncDecAttention.q", self._norm(f"{of}1.layer_norm", x))
            k, v = (self._projected(f"{of}1.EncDecAttention.{name}", states) for name in "kv")
            x = x + self._attention(f"{of}1.EncDecAttention.", q, k, v, np.zeros(()))
            x = x + self._feed_forward(f"{of}2.", x)
        x = self._norm("decoder.final_layer_norm", x)
        # models/t5/T5Decoding.cc:671, T5DecodingWeight.cc:263
        scaled = self._ini["decoder"].get("tie_word_embeddings", "true").lower() in TRUE
        own = (self._folder / "lm_head.weight.bin").is_file()
        head = self._file("lm_head.weight", *self._table().shape) if own else self._table()
        found: Array = (x / np.sqrt(self._hidden) if scaled else x) @ head.T
        return found

    def _table(self) -> Array:
        return self._file("shared.weight_T", int(self._ini["decoder"]["vocab_size"]), self._hidden)

    def _norm(self, name: str, x: Array) -> Array:
        """kernels/layernorm_kernels.cu, generalT5LayerNorm: no mean is subtracted, nothing added."""
        epsilon = float(self._ini[name.partition(".")[0]].get("layer_norm_epsilon", "1e-6"))
        normed: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
        return normed * self._file(f"{name}.weight", self._hidden)

    def _projected(self, name: str, x: Array) -> Array:
        projected: Array = x @ self._file(f"{name}.weight.0", self._hidden, self._heads * self._size)
        return projected.reshape(len(x), self._heads, -1)

    def _attention(self, of: str, q: Array, k: Array, v: Array, bias: Array) -> Any:
        scores = np.einsum("qhd,khd->hqk", q, k) + bias
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", raised / raised.sum(-1, keepdims=True), v)
        return mixed.reshape(len(q), -1) @ self._file(
            f"{of}o.weight.0", self._heads * self._size, self._hidden
        )

    def _distances(self, side: str, length: int) -> Array:
        """kernels/gen_relative_pos_bias.cu, kernels/bert_preprocess_kernels.cu:291-338; [heads, from, to]."""
        buckets = int(self._ini[side]["relative_attention_num_buckets_or_max_pos_seq_len"])
        of = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight.0"
        distance = np.arange(length)[None, :] - np.arange(length)[:, None]
        both = side == "encoder"
        known = buckets // 2 if both else buckets
        away = np.abs(distance) if both else np.maximum(-distance, 0)
        exact = known // 2
        steps = np.log(np.maximum(away, 1) / exact) / np.log(MAX_DISTANCE / exact) * (known - exact)
        bucket = np.where(away < exact, away, np.minimum(exact + steps.astype(np.int64), known - 1))
        bucket = bucket + known * (distance > 0) if both else bucket
        return self._file(of, self._heads, buckets)[:, bucket]

    def _feed_forward(self, of: str, x: Array) -> Any:
        normed = self._norm(f"{of}layer_norm", x)
        wide = normed @ self._file(f"{of}DenseReluDense.wi.weight.0", self._hidden, self._inner)
        activation = self._ini["decoder"]["feed_forward_proj"].removeprefix("gated-")
        if activation == "relu":
            wide = np.maximum(wide, 0)
        elif activation == "silu":
            wide = wide / (1 + np.exp(-wide))
        else:  # kernels/activation_kernels.cu:50-58, GELU's tanh form
            wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        if self._gated:
            wide = wide * (normed @ self._file(f"{of}DenseReluDense.wi2.weight.0", self._hidden, self._inner))
        return wide @ self._file(f"{of}DenseReluDense.wo.weight.0", self._inner, self._hidden)

    def _file(self, name: str, *shape: int) -> Array:
        stored = np.fromfile(self._folder / f"{name}.bin", DTYPES[self._ini["decoder"]["weight_data_type"]])
        return stored.reshape(shape).astype(np.float64)

"""The encoder of FasterTransformer's T5 in numpy: the formulas of its kernels, over converted files.

Each GPU has its own files, and sums over GPUs stand where FasterTransformer has an all-reduce. Paths are
below src/fastertransformer of v5.3.
"""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = {"fp32": np.float32, "fp16": np.float16}
MAX_DISTANCE = 128  # triton_backend/t5-encoder/T5EncoderTritonModel.cc:135


class T5Encoder:
    """A model of a folder `<n>-gpu`."""

    def __init__(self, folder: Path) -> None:
        config = configparser.ConfigParser(interpolation=None)
        config.read(folder / "config.ini")
        # triton_backend/t5-encoder/T5EncoderTritonModel.cc:99-127
        self._ini = dict(config["encoder"])
        self._gated = config["structure"].getboolean("use_gated_activation")
        self._folder = folder
        self._gpus = int(folder.name.removesuffix("-gpu"))
        self._heads, self._size = int(self._ini["num_heads"]), int(self._ini["d_kv"])
        self._hidden, self._inner = int(self._ini["d_model"]), int(self._ini["d_ff"])
        self._buckets = int(self._ini["relative_attention_num_buckets_or_max_pos_seq_len"])
        self._epsilon = float(self._ini.get("layer_norm_epsilon", "1e-6"))  # patches/ft/0492

    def states(self, ids: Array, lengths: Array) -> Array:
        """The output_hidden_state [batch, longest, hidden] of input_ids and sequence_length."""
        x = self._file("shared.weight_T", int(self._ini["vocab_size"]), self._hidden)[ids]
        for layer in range(int(self._ini["num_layers"])):
            of = f"encoder.block.{layer}.layer."
            normed = self._norm(f"{of}0.layer_norm", x)
            x = x + sum(
                self._attention(f"{of}0.SelfAttention.", normed, lengths, g) for g in range(self._gpus)
            )
            normed = self._norm(f"{of}1.layer_norm", x)
            x = x + sum(self._feed_forward(f"{of}1.DenseReluDense.", normed, g) for g in range(self._gpus))
        return self._norm("encoder.final_layer_norm", x)

    def _norm(self, name: str, x: Array) -> Array:
        """kernels/layernorm_kernels.cu, generalT5LayerNorm: no mean is subtracted, nothing added."""
        normed: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + self._epsilon)
        return normed * self._file(f"{name}.weight", self._hidden)

    def _attention(self, of: str, x: Array, lengths: Array, gpu: int) -> Any:
        """layers/attention_layers/UnfusedAttentionLayer.cc; T5's scale makes its 1 / sqrt(size) 1 (:190)."""
        local = self._heads // self._gpus * self._size
        q, k, v = (
            (x @ self._file(f"{of}{name}.weight.{gpu}", self._hidden, local)).reshape(
                *x.shape[:2], -1, self._size
            )
            for name in "qkv"
        )
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) + self._bias(x.shape[1], gpu)
        inside = np.arange(x.shape[1]) < lengths.reshape(-1)[:, None]
        scores = scores - 10000.0 * ~(inside[:, None, :, None] & inside[:, None, None, :])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(*x.shape[:2], local)
        return context @ self._file(f"{of}o.weight.{gpu}", local, self._hidden)

    def _bias(self, length: int, gpu: int) -> Array:
        """kernels/bert_preprocess_kernels.cu:291-338, buildRelativeAttentionBias; [heads, from, to]."""
        of = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table = self._file(f"{of}.{gpu}", self._heads // self._gpus, self._buckets)
        distance = np.arange(length)[None, :] - np.arange(length)[:, None]
        side = self._buckets // 2
        exact = side // 2
        far = np.maximum(np.abs(distance), 1).astype(np.float32) / np.float32(exact)
        steps = np.log(far) / np.log(np.float32(MAX_DISTANCE) / np.float32(exact)) * np.float32(side - exact)
        large = np.minimum(exact + steps.astype(np.int64), side - 1)
        bucket = np.where(np.abs(distance) < exact, np.abs(distance), large) + side * (distance > 0)
        return table[:, bucket]

    def _feed_forward(self, of: str, x: Array, gpu: int) -> Any:
        """layers/FfnLayer.cc: the first matrix is activated, and multiplied with the gate if there is one."""
        inner = self._inner // self._gpus
        wide = x @ self._file(f"{of}wi.weight.{gpu}", self._hidden, inner)
        if self._ini["feed_forward_proj"].endswith("relu"):
            wide = np.maximum(wide, 0)
        else:  # kernels/activation_kernels.cu:50-58, GELU's tanh form
            wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        if self._gated:
            wide = wide * (x @ self._file(f"{of}wi2.weight.{gpu}", self._hidden, inner))
        return wide @ self._file(f"{of}wo.weight.{gpu}", inner, self._hidden)

    def _file(self, name: str, *shape: int) -> Array:
        stored = np.fromfile(self._folder / f"{name}.bin", DTYPES[self._ini["weight_data_type"]])
        return stored.reshape(shape).astype(np.float64)

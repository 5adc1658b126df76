"""FasterTransformer's BERT in numpy: the formulas of its kernels, over converted files.

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


class Bert:
    """A model of a folder `<n>-gpu`."""

    def __init__(self, folder: Path) -> None:
        config = configparser.ConfigParser()
        config.read(folder / "config.ini")
        self._ini = dict(config["bert"])  # triton_backend/bert/BertTritonModel.cc:66-73
        self._folder = folder
        self._gpus = int(folder.name.removesuffix("-gpu"))
        self._heads, self._size = int(self._ini["head_num"]), int(self._ini["size_per_head"])
        self._hidden, self._inner = self._heads * self._size, int(self._ini["inter_size"])
        self._epsilon = float(self._ini.get("layer_norm_eps", "1e-6"))  # patches/ft/0491

    def states(self, states: Array, lengths: Array) -> Array:
        """The output_hidden_state [batch, longest, hidden] of an input_hidden_state and sequence_lengths."""
        x = states.astype(np.float64)
        for layer in range(int(self._ini["num_layer"])):
            x = self._layer(f"model.encoder.layer.{layer}.", x, lengths)
        return x

    def _layer(self, of: str, x: Array, lengths: Array) -> Array:
        """models/bert/Bert.cc:479-606, post_layernorm."""
        attention = sum(self._attention(f"{of}attention.", x, lengths, gpu) for gpu in range(self._gpus))
        bias = self._file(f"{of}attention.output.dense.bias", self._hidden)
        x = self._norm(f"{of}attention.output.LayerNorm", x + attention + bias)
        wide = sum(self._feed_forward(of, x, gpu) for gpu in range(self._gpus))
        bias = self._file(f"{of}output.dense.bias", self._hidden)
        return self._norm(f"{of}output.LayerNorm", x + wide + bias)

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        normed: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self._epsilon)
        return normed * self._file(f"{name}.weight", self._hidden) + self._file(f"{name}.bias", self._hidden)

    def _attention(self, of: str, x: Array, lengths: Array, gpu: int) -> Any:
        """layers/attention_layers/UnfusedAttentionLayer.cc, without the bias of the last matrix."""
        local = self._hidden // self._gpus
        q, k, v = (
            (
                x @ self._file(f"{of}self.{name}.weight.{gpu}", self._hidden, local)
                + self._file(f"{of}self.{name}.bias.{gpu}", local)
            ).reshape(*x.shape[:2], -1, self._size)
            for name in ("query", "key", "value")
        )
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(self._size)
        # kernels/bert_preprocess_kernels.cu, buildEncoderAttentionMask; kernels/unfused_attention_kernels.cu
        # adds -10000 to what is masked.
        inside = np.arange(x.shape[1]) < lengths[:, None]
        scores = scores - 10000.0 * ~(inside[:, None, :, None] & inside[:, None, None, :])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(*x.shape[:2], local)
        return context @ self._file(f"{of}output.dense.weight.{gpu}", local, self._hidden)

    def _feed_forward(self, of: str, x: Array, gpu: int) -> Any:
        inner = self._inner // self._gpus
        wide = x @ self._file(f"{of}intermediate.dense.weight.{gpu}", self._hidden, inner)
        wide = wide + self._file(f"{of}intermediate.dense.bias.{gpu}", inner)
        if self._ini["activation_type"] == "relu":
            wide = np.maximum(wide, 0)
        else:  # kernels/activation_kernels.cu:50-58, GELU's tanh form
            wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        return wide @ self._file(f"{of}output.dense.weight.{gpu}", inner, self._hidden)

    def _file(self, name: str, *shape: int) -> Array:
        stored = np.fromfile(self._folder / f"{name}.bin", DTYPES[self._ini["weight_data_type"]])
        return stored.reshape(shape).astype(np.float64)

"""FasterTransformer's GPT-J in numpy: the formulas of its kernels, over converted files, as patched.

Each GPU has its own files, and sums over GPUs stand where FasterTransformer has an all-reduce. Paths are
below src/fastertransformer of v5.3, the epsilon's key is patches/ft/0490's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftbuild.models import config_ini

Array = np.ndarray[Any, Any]
DTYPES = {"fp32": np.float32, "fp16": np.float16}


class GptJ:
    """A model of a folder `<n>-gpu`."""

    def __init__(self, folder: Path) -> None:
        self._ini = config_ini.read(folder).values
        self._folder, self._gpus = folder, int(folder.name.removesuffix("-gpu"))
        # triton_backend/gptj/GptJTritonModel.cc:70-82
        self._heads, self._size = int(self._ini["head_num"]), int(self._ini["size_per_head"])
        self._hidden, self._inner = self._heads * self._size, int(self._ini["inter_size"])

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits after each of the tokens."""
        vocabulary = int(self._ini["vocab_size"])
        x = self._file("model.wte", vocabulary, self._hidden)[list(tokens)]
        for layer in range(int(self._ini["num_layer"])):
            of = f"model.layers.{layer}."
            # models/gptj/GptJContextDecoder.cc:347-420: both layers get the same norm, their sum is added
            normed = self._norm(f"{of}input_layernorm", x)
            for gpu in range(self._gpus):
                x = x + self._attention(of, normed, gpu) + self._feed_forward(of, normed, gpu)
            x = x + self._file(f"{of}mlp.dense_4h_to_h.bias", self._hidden)
        head = self._file("model.lm_head.weight", vocabulary, self._hidden)
        found: Array = self._norm("model.final_layernorm", x) @ head.T
        return found + self._file("model.lm_head.bias", vocabulary)

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        spread = (centred**2).mean(-1, keepdims=True) + float(self._ini.get("layernorm_eps", "1e-6"))
        normed: Array = centred / np.sqrt(spread) * self._file(f"{name}.weight", self._hidden)
        return normed + self._file(f"{name}.bias", self._hidden)

    def _attention(self, of: str, x: Array, gpu: int) -> Any:
        local = self._hidden // self._gpus
        fused = x @ self._file(f"{of}attention.query_key_value.weight.{gpu}", self._hidden, 3 * local)
        q, k, v = np.moveaxis(fused.reshape(len(x), 3, -1, self._size), 1, 0)
        q, k = self._rotated(q), self._rotated(k)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self._size)
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", raised / raised.sum(-1, keepdims=True), v).reshape(len(x), local)
        return mixed @ self._file(f"{of}attention.dense.weight.{gpu}", local, self._hidden)

    def _rotated(self, x: Array) -> Array:
        """Rotate every head's pairs (2i, 2i + 1) of the first dimensions.

        kernels/decoder_masked_multihead_attention_utils.h:1325-1363.
        """
        rotated = int(self._ini["rotary_embedding"])
        angle = np.arange(len(x))[:, None, None] / 10000 ** (np.arange(0, rotated, 2) / rotated)
        even, odd = x[..., :rotated:2], x[..., 1:rotated:2]
        turned = np.stack(
            [np.cos(angle) * even - np.sin(angle) * odd, np.cos(angle) * odd + np.sin(angle) * even], -1
        )
        return np.concatenate([turned.reshape(*x.shape[:2], rotated), x[..., rotated:]], axis=-1)

    def _feed_forward(self, of: str, x: Array, gpu: int) -> Any:
        inner = self._inner // self._gpus
        wide = x @ self._file(f"{of}mlp.dense_h_to_4h.weight.{gpu}", self._hidden, inner)
        wide = wide + self._file(f"{of}mlp.dense_h_to_4h.bias.{gpu}", inner)
        wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        return wide @ self._file(f"{of}mlp.dense_4h_to_h.weight.{gpu}", inner, self._hidden)

    def _file(self, name: str, *shape: int) -> Array:
        stored = np.fromfile(self._folder / f"{name}.bin", DTYPES[self._ini["weight_data_type"]])
        return stored.reshape(shape).astype(np.float64)

"""What FasterTransformer's GPT computes with a folder of converted weights, in numpy.

The order of operations and the keys of config.ini are those of FT v5.3: ParallelGptTritonModel.cc:219-251,
ParallelGpt.cc:960-1080 and 1340-1400, ParallelGptContextDecoder.cc:440-720,
unfused_attention_kernels.cu:255-326.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftbuild.models import config_ini

Array = np.ndarray[Any, Any]
TRUE = ("1", "true", "yes", "on")


class Gpt:
    """A model split over the GPUs of the folder's name; `slopes` gives ALiBi's for a number of heads."""

    def __init__(self, folder: Path, slopes: Callable[[int], Array]) -> None:
        self._folder, self._gpus = folder, int(folder.name.removesuffix("-gpu"))
        self._values = config_ini.read(folder).values
        self.heads, self.layers = int(self._values["head_num"]), int(self._values["num_layer"])
        self.hidden = self.heads * int(self._values["size_per_head"])
        self.inner, self.vocabulary = int(self._values["inter_size"]), int(self._values["vocab_size"])
        self._slopes = slopes(self.heads) if self._has("use_attention_linear_bias", "0") else None

    def _has(self, key: str, default: str) -> bool:
        return self._values.get(key, default).lower() in TRUE

    def _whole(self, name: str, *shape: int) -> Array:
        values = np.fromfile(self._folder / f"model.{name}.bin", np.float32)
        return np.asarray(values.reshape(shape), float)

    def _joined(self, name: str, axis: int, *shape: int) -> Array:
        """A matrix of which each GPU has a share along an axis."""
        share = [size // self._gpus if n == axis % len(shape) else size for n, size in enumerate(shape)]
        parts = [self._whole(f"{name}.{rank}", *share) for rank in range(self._gpus)]
        return np.concatenate(parts, axis)

    def _norm(self, name: str, x: Array) -> Array:
        weight, bias = (self._whole(f"{name}.{kind}", self.hidden) for kind in ("weight", "bias"))
        eps = float(self._values.get("layernorm_eps", "1e-6"))
        normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return np.asarray(normal * weight + bias)

    def _attention(self, of: str, x: Array) -> Array:
        length = len(x)
        weight = self._joined(f"{of}query_key_value.weight", -1, self.hidden, 3, self.hidden)
        bias = self._joined(f"{of}query_key_value.bias", -1, 3, self.hidden)
        query, key, value = (
            (x @ weight[:, i] + bias[i]).reshape(length, self.heads, -1).transpose(1, 0, 2) for i in range(3)
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(self.hidden // self.heads)
        distance = np.arange(length)[None] - np.arange(length)[:, None]
        if self._slopes is not None:
            scores = scores + self._slopes[:, None, None] * distance
        scores = scores - 10000.0 * (distance > 0)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = raised / (raised.sum(-1, keepdims=True) + 1e-6) @ value
        dense = self._joined(f"{of}dense.weight", 0, self.hidden, self.hidden)
        return np.asarray(mixed.transpose(1, 0, 2).reshape(length, self.hidden) @ dense)

    def _feed_forward(self, of: str, x: Array) -> Array:
        wide = x @ self._joined(f"{of}dense_h_to_4h.weight", -1, self.hidden, self.inner)
        wide = wide + self._joined(f"{of}dense_h_to_4h.bias", -1, self.inner)
        if self._values.get("activation_type", "Gelu") == "Relu":
            wide = np.maximum(wide, 0)
        else:
            wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        return np.asarray(wide @ self._joined(f"{of}dense_4h_to_h.weight", 0, self.inner, self.hidden))

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits after each of the tokens."""
        table = self._whole("wte", self.vocabulary, self.hidden)
        x = table[list(tokens)]
        if self._has("has_positional_encoding", "1"):
            x = x + self._whole("wpe", int(self._values["max_pos_seq_len"]), self.hidden)[: len(x)]
        if self._has("has_pre_decoder_layernorm", "0"):
            x = self._norm("pre_decoder_layernorm", x)
        first = self._values.get("layernorm_type", "pre_layernorm") == "pre_layernorm"
        for layer in range(self.layers):
            of = f"layers.{layer}."
            given = self._norm(f"{of}input_layernorm", x) if first else x
            x = x + self._attention(f"{of}attention.", given)
            x = x + self._whole(f"{of}attention.dense.bias", self.hidden)
            x = x if first else self._norm(f"{of}input_layernorm", x)
            given = self._norm(f"{of}post_attention_layernorm", x) if first else x
            x = x + self._feed_forward(f"{of}mlp.", given)
            x = x + self._whole(f"{of}mlp.dense_4h_to_h.bias", self.hidden)
            x = x if first else self._norm(f"{of}post_attention_layernorm", x)
        if self._has("has_post_decoder_layernorm", "1"):
            x = self._norm("final_layernorm", x)
        if (self._folder / "model.lm_head.weight.bin").is_file():
            table = self._whole("lm_head.weight", self.vocabulary, self.hidden)
        return np.asarray(x @ table.T)

"""What FasterTransformer's GPT computes with a folder of converted weights, in numpy.

The order of operations and the keys of config.ini are those of FT v5.3: ParallelGptTritonModel.cc:219-251,
ParallelGpt.cc:960-1080 and 1340-1400, ParallelGptContextDecoder.cc:440-720,
unfused_attention_kernels.cu:255-326. A mixture of experts is FfnLayer.cc:82-125 and moe_kernels.cu:174-352,
622-738, 892-935; its section of config.ini that of megatron_gpt_moe_ckpt_convert.py:576-611.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftbuild.client.golden import Row
from ftbuild.models import config_ini

Array = np.ndarray[Any, Any]
TRUE = ("1", "true", "yes", "on")


def rounded_to_int8(weight: Array, inputs: int) -> Array:
    """What int8_mode 1 computes with in place of a matrix whose axis `inputs` is summed over.

    Each output has a scale, 1/128 of its largest input; halves are rounded away from zero
    (cutlass_preprocessors.cc, symmetric_quantize). The two are multiplied in fp16
    (mma_tensorop_dequantizer.h:260-274).
    """
    scale = np.abs(weight).max(inputs, keepdims=True) / 128
    steps = weight / np.where(scale > 0, scale, 1)
    whole = np.clip(np.sign(steps) * np.floor(np.abs(steps) + 0.5), -128, 127)
    return np.asarray(whole.astype(np.float16) * scale.astype(np.float16), float)


class Gpt:
    """A model split over the GPUs of the folder's name; `slopes` gives ALiBi's for a number of heads.

    With `int8` its matrices are those of int8_mode 1.
    """

    def __init__(
        self, folder: Path, slopes: Callable[[int], Array] | None = None, *, int8: bool = False
    ) -> None:
        self._folder, self._gpus = folder, int(folder.name.removesuffix("-gpu"))
        self._values = config_ini.read(folder).values
        self.heads, self.layers = int(self._values["head_num"]), int(self._values["num_layer"])
        self.hidden = self.heads * int(self._values["size_per_head"])
        self.inner, self.vocabulary = int(self._values["inter_size"]), int(self._values["vocab_size"])
        self._slopes = slopes(self.heads) if slopes and self._has("use_attention_linear_bias", "0") else None
        structure = config_ini.all_values(folder / config_ini.FILE)
        self.expert_layers = [int(n) for n in re.findall("[0-9]+", structure.get("structure.moe_layers", ""))]
        self.experts = int(structure.get("structure.expert_num", "0"))
        self.chosen = int(structure.get("structure.moe_k", "1"))
        self._int8, self._known = int8, dict[str, Array]()
        # How much clearer the last expert chosen was than the next one, by the logits of the gates.
        self.margins: list[float] = []

    def _has(self, key: str, default: str) -> bool:
        return self._values.get(key, default).lower() in TRUE

    def _whole(self, name: str, *shape: int) -> Array:
        if name not in self._known:
            values = np.fromfile(self._folder / f"model.{name}.bin", np.float32)
            self._known[name] = np.asarray(values.reshape(shape), float)
        return self._known[name]

    def _joined(self, name: str, axis: int, *shape: int, inputs: int = 0) -> Array:
        """A matrix, summed over axis `inputs`, or a bias, of which each GPU has a share along an axis."""
        if name not in self._known:
            share = [size // self._gpus if n == axis % len(shape) else size for n, size in enumerate(shape)]
            parts = [self._whole(f"{name}.{rank}", *share) for rank in range(self._gpus)]
            if self._int8 and name.endswith(".weight"):
                parts = [rounded_to_int8(part, inputs) for part in parts]
            self._known[name] = np.concatenate(parts, axis)
        return self._known[name]

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

    def _activated(self, x: Array) -> Array:
        if self._values.get("activation_type", "Gelu") == "Relu":
            return np.maximum(x, 0)
        return np.asarray(x * 0.5 * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))))

    def _feed_forward(self, of: str, x: Array) -> Array:
        wide = x @ self._joined(f"{of}dense_h_to_4h.weight", -1, self.hidden, self.inner)
        wide = self._activated(wide + self._joined(f"{of}dense_h_to_4h.bias", -1, self.inner))
        out = wide @ self._joined(f"{of}dense_4h_to_h.weight", 0, self.inner, self.hidden)
        return np.asarray(out + self._whole(f"{of}dense_4h_to_h.bias", self.hidden))

    def _mixture(self, of: str, x: Array) -> Array:
        """The sum of what the chosen experts make of each token, each times its probability among all."""
        scores = x @ self._whole(f"{of}gate.wg.weight", self.hidden, self.experts)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        probability = raised / raised.sum(-1, keepdims=True)
        # Of equals, the first.
        order = np.argsort(-scores, axis=-1, kind="stable")
        self._note_margins(np.take_along_axis(scores, order, -1))
        out = np.zeros_like(x)
        for expert, made in enumerate(self._by_expert(f"{of}experts.", x)):
            chosen = (order[:, : self.chosen] == expert).any(-1)
            out[chosen] += probability[chosen, expert, None] * made[chosen]
        return out

    def _by_expert(self, of: str, x: Array) -> Array:
        """What each expert makes of all tokens: [experts, tokens, hidden]."""
        many, hidden, inner = self.experts, self.hidden, self.inner
        wide = x @ self._joined(f"{of}dense_h_to_4h.weight", -1, many, hidden, inner, inputs=1)
        bias = self._joined(f"{of}dense_h_to_4h.bias", -1, many, inner)
        out = self._activated(wide + bias[:, None]) @ self._joined(
            f"{of}dense_4h_to_h.weight", 1, many, inner, hidden, inputs=1
        )
        return np.asarray(out + self._whole(f"{of}dense_4h_to_h.bias", many, hidden)[:, None])

    def _note_margins(self, descending: Array) -> None:
        if self.chosen < self.experts:
            self.margins.extend(descending[:, self.chosen - 1] - descending[:, self.chosen])

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
            mixed = layer in self.expert_layers
            x = x + (
                self._mixture(f"{of}mlp.moe.", given) if mixed else self._feed_forward(f"{of}mlp.", given)
            )
            x = x if first else self._norm(f"{of}post_attention_layernorm", x)
        if self._has("has_post_decoder_layernorm", "1"):
            x = self._norm("final_layernorm", x)
        if (self._folder / "model.lm_head.weight.bin").is_file():
            table = self._whole("lm_head.weight", self.vocabulary, self.hidden)
        return np.asarray(x @ table.T)

    def answer(self, prompt: Sequence[int], length: int) -> Row:
        """The likeliest token, `length` times, and how far ahead of the next it was."""
        tokens, log_probs, second, gap = list(prompt), [], [], []
        for _ in range(length):
            last = self.logits(tokens)[-1]
            best, runner_up = (int(token) for token in np.argsort(-last, kind="stable")[:2])
            log_probs.append(float(last[best] - last.max() - np.log(np.exp(last - last.max()).sum())))
            gap.append(float(last[best] - last[runner_up]))
            second.append(runner_up)
            tokens.append(best)
        return Row(tokens[len(prompt) :], log_probs, second, gap)

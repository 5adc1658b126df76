"""FasterTransformer's GPT-NeoX in numpy: the formulas of its kernels, over converted files, as patched.

Each GPU has its own files, and sums over GPUs stand where FasterTransformer has an all-reduce. Paths are
below src/fastertransformer of v5.3, keys those of patches/ft/0400 and 0420.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = {"fp32": np.float32, "fp16": np.float16}


class GptNeoX:
    """A model of a folder `<n>-gpu`; `changed` values of config.ini replace those that are there."""

    def __init__(self, folder: Path, changed: Mapping[str, str] | None = None) -> None:
        config = configparser.ConfigParser()
        config.read(folder / "config.ini")
        # triton_backend/gptneox/GptNeoXTritonModel.cc:73-84, with the defaults there
        self._ini = {**dict(config["gptneox"]), **(changed or {})}
        self._folder = folder
        self._gpus = int(folder.name.removesuffix("-gpu"))
        self._heads, self._size = int(self._ini["head_num"]), int(self._ini["size_per_head"])
        self._hidden = self._heads * self._size
        self._vocabulary = int(self._ini["vocab_size"])
        self._eps = float(self._ini.get("layernorm_eps", "1e-5"))
        self._rms = self._ini.get("use_rms_norm", "0") == "1"
        self._gated = self._ini.get("activation_type", "gelu") == "gated-silu"
        self._parallel = self._ini.get("use_gptj_residual", "1") == "1"

    def logits(self, tokens: list[int]) -> Array:
        """The logits after each of the tokens."""
        # kernels/gpt_kernels.cu, invokeInputIdsEmbeddingLookupPosEncoding; no table of positions
        x = self._file("model.wte", self._vocabulary, self._hidden)[tokens]
        for layer in range(int(self._ini["num_layer"])):
            x = self._layer(f"model.layers.{layer}.", x)
        # models/gptneox/GptNeoX.cc:866-894: norm, then the head, transposed (CUBLAS_OP_T)
        head = self._file("model.lm_head.weight", self._vocabulary, self._hidden)
        found: Array = self._norm("model.final_layernorm", x) @ head.T
        return found

    def _layer(self, of: str, x: Array) -> Any:
        normed = self._norm(f"{of}input_layernorm", x)
        attention = [self._attention(of, normed, gpu) for gpu in range(self._gpus)]
        if self._parallel:
            # GptNeoXContextDecoder.cc:393-432: each GPU adds the biases and its share of the input
            normed = self._norm(f"{of}post_attention_layernorm", x)
            biases = self._file(f"{of}mlp.attention.bias.sum", self._hidden)
            outputs = [self._feed_forward(of, normed, gpu) for gpu in range(self._gpus)]
            return sum(
                (f + a + biases + x / self._gpus for f, a in zip(outputs, attention, strict=True)),
                np.zeros_like(x),
            )
        # GptNeoXContextDecoder.cc:405-424, 458-464: sums over GPUs within the two layers, then each bias once
        x = sum(attention, x) + self._bias(f"{of}attention.dense.bias", self._hidden)
        normed = self._norm(f"{of}post_attention_layernorm", x)
        outputs = [self._feed_forward(of, normed, gpu) for gpu in range(self._gpus)]
        return sum(outputs, x) + self._bias(f"{of}mlp.dense_4h_to_h.bias", self._hidden)

    def _norm(self, name: str, x: Array) -> Any:
        gamma = self._file(f"{name}.weight", self._hidden)
        if (
            self._rms
        ):  # kernels/layernorm_kernels.cu:1777-1802, generalT5LayerNorm; :1415-1446 after a residual
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + self._eps) * gamma
        centred = x - x.mean(-1, keepdims=True)  # generalLayerNorm
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self._eps)
        return normed * gamma + self._file(f"{name}.bias", self._hidden)

    def _attention(self, of: str, x: Array, gpu: int) -> Any:
        # layers/attention_layers/GptContextAttentionLayer.cc:129-140: [hidden, 3 x this GPU's hidden]
        local, name = self._hidden // self._gpus, f"{of}attention.query_key_value"
        fused = x @ self._file(f"{name}.weight.{gpu}", self._hidden, 3 * local)
        fused = fused + self._bias(f"{name}.bias.{gpu}", 3 * local)
        # kernels/unfused_attention_kernels.cu:1397-1400: [token, 3, head, size]
        q, k, v = np.moveaxis(fused.reshape(len(x), 3, -1, self._size), 1, 0)
        q, k = self._rotated(q), self._rotated(k)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self._size)
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), local)
        return context @ self._file(f"{of}attention.dense.weight.{gpu}", local, self._hidden)

    def _rotated(self, x: Array) -> Array:
        """Rotate every head's pairs (i, i + half) of the first dimensions.

        kernels/unfused_attention_kernels.cu:1429-1466 and the template of the masked attention, :1332-1385:
        through shared memory, which `vec_from_smem_transpose` reads in such pairs. The i-th pair gets the
        coefficient of 2i (decoder_masked_multihead_attention_utils.h:1325-1337).
        """
        rotated = int(self._ini["rotary_embedding"])
        half = rotated // 2
        base = float(self._ini.get("rotary_emb_base", "10000"))
        scale = 1 / float(self._ini.get("rotary_scaling_factor", "1"))
        steps = np.arange(len(x))[:, None, None]
        angle = scale * steps / base ** (2 * np.arange(half) / rotated)
        first, second = x[..., :half], x[..., half:rotated]
        turned = (
            np.cos(angle) * first - np.sin(angle) * second,
            np.cos(angle) * second + np.sin(angle) * first,
        )
        return np.concatenate([*turned, x[..., rotated:]], axis=-1)

    def _feed_forward(self, of: str, x: Array, gpu: int) -> Any:
        inner = int(self._ini["inter_size"]) // self._gpus
        wide = x @ self._file(f"{of}mlp.dense_h_to_4h.weight.{gpu}", self._hidden, inner)
        if self._gated:  # kernels/activation_kernels.cu:112-119, 215-217: SiLU of the one, times the other
            gate = x @ self._file(f"{of}mlp.dense_h_to_4h_2.weight.{gpu}", self._hidden, inner)
            wide = wide / (1 + np.exp(-wide)) * gate
        else:  # :50-58, GELU's tanh form
            wide = wide + self._bias(f"{of}mlp.dense_h_to_4h.bias.{gpu}", inner)
            wide = wide * 0.5 * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide**3)))
        return wide @ self._file(f"{of}mlp.dense_4h_to_h.weight.{gpu}", inner, self._hidden)

    def _bias(self, name: str, width: int) -> Array:
        return np.zeros(width) if self._rms else self._file(name, width)

    def _file(self, name: str, *shape: int) -> Array:
        stored = np.fromfile(self._folder / f"{name}.bin", DTYPES[self._ini["weight_data_type"]])
        return stored.reshape(shape).astype(np.float64)

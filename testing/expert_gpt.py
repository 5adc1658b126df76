"""A small GPT with a mixture of experts, random, in the files that FasterTransformer loads.

Names and order are those of megatron_gpt_moe_ckpt_convert.py (FT v5.3): the weights of a layer's experts lie
one behind the other (:355-425), the gate is [hidden, experts] and whole on every GPU (:129-141), [structure]
of config.ini counts them (:576-611, which does not write moe_k).
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ftbuild.models import config_ini, weights

Array = np.ndarray[Any, Any]
# Files of which every GPU has a share -> the axis from the end that is split, with experts and without.
_SPLIT: Mapping[str, int] = {
    "query_key_value.weight": -1, "query_key_value.bias": -1, "attention.dense.weight": -2,
    "dense_h_to_4h.weight": -1, "dense_h_to_4h.bias": -1, "dense_4h_to_h.weight": -2,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `chosen` of the `experts` compute each token in the layers `mixed`.

    Neither the hidden nor the inner size is a multiple of a kernel's block; the latter is one of 8 on each of
    two GPUs, which is what kernels of fp16 and bf16 read at once.
    """

    heads: int = 2
    size_per_head: int = 48
    inner: int = 208
    layers: int = 3
    mixed: tuple[int, ...] = (1,)
    experts: int = 4
    chosen: int = 2
    vocabulary: int = 509
    positions: int = 64
    activation: str = "Gelu"

    @property
    def hidden(self) -> int:
        """Numbers of a token's state."""
        return self.heads * self.size_per_head


def model(shape: Shape, seed: int) -> dict[str, Array]:
    """Return the weights of a random model, whole, by the name of their file without rank and suffix.

    States, what experts add to them and the scores of gates are so large that every part decides answers.
    """
    maker = _Maker(shape, np.random.default_rng(seed))
    found = {"wte": maker.random(shape.vocabulary, shape.hidden, size=0.5)}
    # A head of its own: with the table, a model mostly repeats its last token.
    found["lm_head.weight"] = maker.random(shape.vocabulary, shape.hidden, size=0.5)
    found["wpe"] = maker.random(shape.positions, shape.hidden, size=0.5)
    for layer in range(shape.layers):
        found |= {f"layers.{layer}.{name}": value for name, value in maker.layer(layer in shape.mixed)}
    return found | dict(maker.norm("final_layernorm"))


def write(folder: Path, shape: Shape, found: Mapping[str, Array], gpus: int = 1) -> Path:
    """Write the weights in fp32, for that many GPUs, and config.ini; return the folder `<n>-gpu`."""
    out = folder / weights.folder_name(gpus)
    out.mkdir(parents=True)
    for name, value in found.items():
        axis = next((axis for end, axis in _SPLIT.items() if name.endswith(end)), None)
        if axis is None:
            value.astype(np.float32).tofile(out / f"model.{name}.bin")
        else:
            for rank, share in enumerate(np.split(value, gpus, axis)):
                share.astype(np.float32).tofile(out / f"model.{name}.{rank}.bin")
    with (out / config_ini.FILE).open("w") as file:
        _config(shape, gpus).write(file)
    return out


def _config(shape: Shape, gpus: int) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config["gpt"] = {
        "model_name": "gpt",
        "head_num": str(shape.heads),
        "size_per_head": str(shape.size_per_head),
        "inter_size": str(shape.inner),
        "num_layer": str(shape.layers),
        "max_pos_seq_len": str(shape.positions),
        "vocab_size": str(shape.vocabulary),
        "activation_type": shape.activation,
        "has_adapters": "False",
        "adapter_inter_size": "0",
        "layernorm_eps": "1e-05",
        "start_id": str(shape.vocabulary - 1),
        "end_id": str(shape.vocabulary - 1),
        "weight_data_type": "fp32",
        "tensor_para_size": str(gpus),
    }
    config["structure"] = {
        "gpt_with_moe": "1",
        "expert_num": str(shape.experts),
        "moe_layers": str(list(shape.mixed)),
        "moe_k": str(shape.chosen),
    }
    return config


@dataclass(frozen=True)
class Example:
    """A model whose answers hang on no rounding in these data types; `int8`: its weights are, in fp16."""

    shape: Shape
    seed: int
    dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16")

    @property
    def int8(self) -> bool:
        """Whether its weights are int8."""
        return self.dtypes == ("int8",)


PROMPTS = ((71, 3, 12, 200, 41), (5, 9, 77), tuple(range(130, 139)))
# Long enough for steps to be replayed (patches/ft/0450).
LENGTH = 16
# With these seeds neither an answer nor the choice of an expert is close (tests/upstream/test_experts.py).
EXAMPLES: Mapping[str, Example] = {
    "one of four": Example(Shape(chosen=1), 260),
    "two of four": Example(Shape(chosen=2), 44),
    "three of six, ReLU": Example(
        Shape(experts=6, chosen=3, mixed=(0, 2), activation="Relu"), 2381, ("fp32", "fp16")
    ),
    "int8": Example(Shape(size_per_head=64, inner=192), 389, ("int8",)),
}


@dataclass(frozen=True)
class _Maker:
    shape: Shape
    numbers: np.random.Generator = field(repr=False)

    def random(self, *sizes: int, size: float) -> Array:
        return self.numbers.normal(0, size, sizes)

    def norm(self, name: str) -> Iterator[tuple[str, Array]]:
        yield f"{name}.weight", 1 + self.random(self.shape.hidden, size=0.1)
        yield f"{name}.bias", self.random(self.shape.hidden, size=0.1)

    def layer(self, mixed: bool) -> Iterator[tuple[str, Array]]:
        """Yield the weights of a layer: its feed-forward network, or the gate and the experts."""
        hidden = self.shape.hidden
        yield from self.norm("input_layernorm")
        yield from self.dense("attention.query_key_value", (), hidden, 3, hidden)
        yield from self.dense("attention.dense", (), hidden, hidden)
        yield from self.norm("post_attention_layernorm")
        of, many = ("mlp.moe.experts", (self.shape.experts,)) if mixed else ("mlp", ())
        yield from self.dense(f"{of}.dense_h_to_4h", many, hidden, self.shape.inner)
        yield from self.dense(f"{of}.dense_4h_to_h", many, self.shape.inner, hidden)
        if mixed:
            yield "mlp.moe.gate.wg.weight", self.random(hidden, self.shape.experts, size=4 / np.sqrt(hidden))

    def dense(
        self, name: str, many: tuple[int, ...], inputs: int, *outputs: int
    ) -> Iterator[tuple[str, Array]]:
        yield f"{name}.weight", self.random(*many, inputs, *outputs, size=1.5 / np.sqrt(inputs))
        yield f"{name}.bias", self.random(*many, *outputs, size=0.5)

"""A GPT-NeoX with random weights, both as FasterTransformer's files and as a model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.topics.inference.models import weights
from benchmarks.topics.inference.models.weights import Drawn, File, turned

if TYPE_CHECKING:
    import torch

HEAD = "lm_head.weight"
# The part of a head that is rotated (transformers, GPTNeoXConfig).
ROTATED = 0.25


@dataclass(frozen=True)
class Shape(Drawn):
    """The size of a GPT-NeoX; the default is that of Pythia 6.9B (its config.json)."""

    name: ClassVar[str] = "GPT-NeoX"
    family: ClassVar[str] = "gptneox"
    head: ClassVar[tuple[str, ...]] = (HEAD,)
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    positions: int = 2048
    vocabulary: int = 50432

    def make(self, device: str) -> Any:
        """Return a GPTNeoXForCausalLM of this shape in fp16."""
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

        described = GPTNeoXConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden,
            hidden_act="gelu_fast",  # FT has the tanh approximation, as GPT-NeoX 20B's config.json asks for
            max_position_embeddings=self.positions,
            vocab_size=self.vocabulary,
            bos_token_id=self.end,
            eos_token_id=self.end,
        )
        return weights.made(GPTNeoXForCausalLM, described, device)

    def files(self) -> Iterator[File]:
        """Yield all files for one GPU, as huggingface_gptneox_convert.py does (FT v5.3, :26-82, 128-190)."""
        hidden, inner, words = self.hidden, 4 * self.hidden, self.vocabulary
        yield File("model.wte.bin", (words, hidden), ("gpt_neox.embed_in.weight",))
        matrices = {
            "attention.dense.weight": (hidden, hidden),
            "mlp.dense_h_to_4h.weight": (hidden, inner),
            "mlp.dense_4h_to_h.weight": (inner, hidden),
        }
        both = ("attention.dense.bias", "mlp.dense_4h_to_h.bias")
        for number in range(self.layers):
            mine, hf = f"model.layers.{number}", f"gpt_neox.layers.{number}"
            for name in ("input_layernorm", "post_attention_layernorm"):
                yield from weights.norm(f"{mine}.{name}", f"{hf}.{name}", hidden)
            for part, size in {"weight": (hidden, 3, hidden), "bias": (3, hidden)}.items():
                name, laid = f"attention.query_key_value.{part}", partial(regrouped, heads=self.heads)
                yield File(f"{mine}.{name}.0.bin", size, (f"{hf}.{name}",), laid)
            for name, size in matrices.items():
                yield File(f"{mine}.{name}.0.bin", size, (f"{hf}.{name}",), turned)
            for name in both:
                yield File(f"{mine}.{name}.bin", (hidden,), (f"{hf}.{name}",))
            yield File(f"{mine}.mlp.dense_h_to_4h.bias.0.bin", (inner,), (f"{hf}.mlp.dense_h_to_4h.bias",))
            sides = tuple(f"{hf}.{name}" for name in both)
            yield File(f"{mine}.mlp.attention.bias.sum.bin", (hidden,), sides, added)
        yield from weights.norm("model.final_layernorm", "gpt_neox.final_layer_norm", hidden)
        yield File("model.lm_head.weight.bin", (words, hidden), (HEAD,))

    def config(self) -> dict[str, dict[str, object]]:
        """Return the sections of config.ini (huggingface_gptneox_convert.py:105-122)."""
        size = self.hidden // self.heads
        return {
            "gptneox": {
                "model_name": "gptneox",
                "head_num": self.heads,
                "size_per_head": size,
                "inter_size": 4 * self.hidden,
                "num_layer": self.layers,
                "rotary_embedding": int(size * ROTATED),
                "vocab_size": self.vocabulary,
                "start_id": self.end,
                "end_id": self.end,
                "use_gptj_residual": 1,
                "weight_data_type": "fp16",
            }
        }


def regrouped(joined: torch.Tensor, heads: int) -> torch.Tensor:
    """Return [heads * 3 * size, in] as [in, 3, heads * size], or without the last dimension a bias."""
    by_head = joined.reshape(heads, 3, -1, *joined.shape[1:]).transpose(0, 1)
    together = by_head.reshape(3, -1, *joined.shape[1:])
    return together.permute(2, 0, 1) if joined.dim() > 1 else together


def added(first: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the sum of two biases, which the parallel residual adds at once."""
    return first + other

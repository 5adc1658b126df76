"""A GPT-J with random weights, both as FasterTransformer's files and as a model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.topics.inference.models import weights
from benchmarks.topics.inference.models.weights import Drawn, File, together, turned

HEAD = "lm_head"


@dataclass(frozen=True)
class Shape(Drawn):
    """The size of a GPT-J; the default is that of GPT-J 6B (its config.json)."""

    name: ClassVar[str] = "GPT-J"
    family: ClassVar[str] = "gptj"
    head: ClassVar[tuple[str, ...]] = (f"{HEAD}.weight", f"{HEAD}.bias")
    layers: int = 28
    hidden: int = 4096
    heads: int = 16
    rotary: int = 64
    positions: int = 2048
    vocabulary: int = 50400

    def make(self, device: str) -> Any:
        """Return a GPTJForCausalLM of this shape in fp16."""
        from transformers import GPTJConfig, GPTJForCausalLM

        described = GPTJConfig(
            n_layer=self.layers,
            n_embd=self.hidden,
            n_head=self.heads,
            rotary_dim=self.rotary,
            n_positions=self.positions,
            vocab_size=self.vocabulary,
            bos_token_id=self.end,
            eos_token_id=self.end,
        )
        return weights.made(GPTJForCausalLM, described, device)

    def files(self) -> Iterator[File]:
        """Yield all files for one GPU, as huggingface_gptj_ckpt_convert.py does (FT v5.3, :42-96, 164)."""
        hidden, inner, words = self.hidden, 4 * self.hidden, self.vocabulary
        yield File("model.wte.bin", (words, hidden), ("transformer.wte.weight",))
        layer = {
            "attn.out_proj.weight": ("attention.dense.weight.0", (hidden, hidden)),
            "mlp.fc_in.weight": ("mlp.dense_h_to_4h.weight.0", (hidden, inner)),
            "mlp.fc_out.weight": ("mlp.dense_4h_to_h.weight.0", (inner, hidden)),
        }
        for number in range(self.layers):
            mine, hf = f"model.layers.{number}", f"transformer.h.{number}"
            yield from weights.norm(f"{mine}.input_layernorm", f"{hf}.ln_1", hidden)
            sides = tuple(f"{hf}.attn.{side}_proj.weight" for side in "qkv")
            yield File(f"{mine}.attention.query_key_value.weight.0.bin", (hidden, 3, hidden), sides, together)
            for parameter, (file, size) in layer.items():
                yield File(f"{mine}.{file}.bin", size, (f"{hf}.{parameter}",), turned)
            yield File(f"{mine}.mlp.dense_h_to_4h.bias.0.bin", (inner,), (f"{hf}.mlp.fc_in.bias",))
            yield File(f"{mine}.mlp.dense_4h_to_h.bias.bin", (hidden,), (f"{hf}.mlp.fc_out.bias",))
        yield from weights.norm("model.final_layernorm", "transformer.ln_f", hidden)
        yield File("model.lm_head.weight.bin", (words, hidden), (f"{HEAD}.weight",))
        yield File("model.lm_head.bias.bin", (words,), (f"{HEAD}.bias",))

    def config(self) -> dict[str, dict[str, object]]:
        """Return the sections of config.ini (huggingface_gptj_ckpt_convert.py:142-155)."""
        return {
            "gptj": {
                "model_name": "gptj",
                "head_num": self.heads,
                "size_per_head": self.hidden // self.heads,
                "inter_size": 4 * self.hidden,
                "num_layer": self.layers,
                "rotary_embedding": self.rotary,
                "vocab_size": self.vocabulary,
                "start_id": self.end,
                "end_id": self.end,
                "weight_data_type": "fp16",
            }
        }

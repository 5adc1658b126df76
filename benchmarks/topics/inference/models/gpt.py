"""A GPT-2 with random weights, both as FasterTransformer's files and as a model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.topics.inference.models import weights
from benchmarks.topics.inference.models.weights import Drawn, File, in_three, same

TABLE = "transformer.wte.weight"


@dataclass(frozen=True)
class Shape(Drawn):
    """The size of a GPT-2; the default is that of GPT-2 XL (its config.json) with more positions and words.

    Twice the positions, for prompts of 1024; its 50257 words rounded up to a multiple of 64. A head of
    FasterTransformer has 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224 or 256 numbers
    (FT v5.3 decoder_masked_multihead_attention.cu).
    """

    name: ClassVar[str] = "GPT"
    family: ClassVar[str] = "gpt"
    head: ClassVar[tuple[str, ...]] = (TABLE,)
    layers: int = 48
    hidden: int = 1600
    heads: int = 25
    positions: int = 2048
    vocabulary: int = 50304

    @property
    def step(self) -> int:
        """Return the number of all but the positions."""
        return self.parameters - self.positions * self.hidden

    def make(self, device: str) -> Any:
        """Return a GPT2LMHeadModel of this shape in fp16."""
        from transformers import GPT2Config, GPT2LMHeadModel

        described = GPT2Config(
            n_layer=self.layers,
            n_embd=self.hidden,
            n_head=self.heads,
            n_positions=self.positions,
            vocab_size=self.vocabulary,
            bos_token_id=self.end,
            eos_token_id=self.end,
        )
        return weights.made(GPT2LMHeadModel, described, device)

    def files(self) -> Iterator[File]:
        """Yield all files for one GPU, as huggingface_gpt_convert.py writes them (FT v5.3, :126-176).

        Matrices are [in, out] in both (transformers' Conv1D), so nothing is transposed. The head is not among
        them: without its file FT takes the embedding (ParallelGptWeight.cc, shared embedding).
        """
        hidden, inner = self.hidden, 4 * self.hidden
        yield File("model.wte.bin", (self.vocabulary, hidden), (TABLE,))
        yield File("model.wpe.bin", (self.positions, hidden), ("transformer.wpe.weight",))
        layer: dict[str, tuple[str, tuple[int, ...]]] = {
            "attn.c_attn.weight": ("attention.query_key_value.weight.0", (hidden, 3, hidden)),
            "attn.c_attn.bias": ("attention.query_key_value.bias.0", (3, hidden)),
            "attn.c_proj.weight": ("attention.dense.weight.0", (hidden, hidden)),
            "attn.c_proj.bias": ("attention.dense.bias", (hidden,)),
            "mlp.c_fc.weight": ("mlp.dense_h_to_4h.weight.0", (hidden, inner)),
            "mlp.c_fc.bias": ("mlp.dense_h_to_4h.bias.0", (inner,)),
            "mlp.c_proj.weight": ("mlp.dense_4h_to_h.weight.0", (inner, hidden)),
            "mlp.c_proj.bias": ("mlp.dense_4h_to_h.bias", (hidden,)),
        }
        for number in range(self.layers):
            mine, hf = f"model.layers.{number}", f"transformer.h.{number}"
            yield from weights.norm(f"{mine}.input_layernorm", f"{hf}.ln_1", hidden)
            yield from weights.norm(f"{mine}.post_attention_layernorm", f"{hf}.ln_2", hidden)
            for parameter, (file, size) in layer.items():
                layout = in_three if "c_attn" in parameter else same
                yield File(f"{mine}.{file}.bin", size, (f"{hf}.{parameter}",), layout)
        yield from weights.norm("model.final_layernorm", "transformer.ln_f", hidden)

    def config(self) -> dict[str, dict[str, object]]:
        """Return the sections of config.ini (huggingface_gpt_convert.py:105-120)."""
        return {
            "gpt": {
                "model_name": "gpt",
                "head_num": self.heads,
                "size_per_head": self.hidden // self.heads,
                "inter_size": 4 * self.hidden,
                "max_pos_seq_len": self.positions,
                "num_layer": self.layers,
                "vocab_size": self.vocabulary,
                "start_id": self.end,
                "end_id": self.end,
                "weight_data_type": "fp16",
                "tensor_para_size": 1,
            }
        }

"""A T5 with random weights, both as FasterTransformer's files and as a model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.topics.inference.models import weights
from benchmarks.topics.inference.models.weights import Drawn, File, together, turned

TABLE = "shared.weight"
START = 0
BUCKETS = 32


@dataclass(frozen=True)
class Shape(Drawn):
    """The size of a T5; the default is that of T5-3B (its config.json)."""

    name: ClassVar[str] = "T5"
    family: ClassVar[str] = "t5"
    head: ClassVar[tuple[str, ...]] = (TABLE,)
    layers: int = 24
    hidden: int = 1024
    heads: int = 32
    head_size: int = 128
    inner: int = 16384
    vocabulary: int = 32128

    @property
    def step(self) -> int:
        """Return the number of the decoder's and the head's, but what makes keys and values of the prompt."""
        of_prompt = ("EncDecAttention.k", "EncDecAttention.v")
        read = (
            file
            for file in self.files()
            if file.name.startswith("decoder.") and not any(part in file.name for part in of_prompt)
        )
        return weights.count(read) + self.vocabulary * self.hidden

    def make(self, device: str) -> Any:
        """Return a T5ForConditionalGeneration of this shape in fp16."""
        from transformers import T5Config, T5ForConditionalGeneration

        described = T5Config(
            num_layers=self.layers,
            num_decoder_layers=self.layers,
            d_model=self.hidden,
            num_heads=self.heads,
            d_kv=self.head_size,
            d_ff=self.inner,
            vocab_size=self.vocabulary,
            relative_attention_num_buckets=BUCKETS,
            decoder_start_token_id=START,
            pad_token_id=START,
            bos_token_id=self.end,
            eos_token_id=self.end,
        )
        return weights.made(T5ForConditionalGeneration, described, device)

    def files(self) -> Iterator[File]:
        """Yield all files for one GPU, as huggingface_t5_ckpt_convert.py writes them (FT v5.3, :48-134)."""
        hidden, all_heads, words = self.hidden, self.heads * self.head_size, self.vocabulary
        for name in ("shared.weight_T.bin", "lm_head.weight.bin"):
            yield File(name, (words, hidden), (TABLE,))
        yield File("shared.weight.bin", (hidden, words), (TABLE,), turned)
        into, out_of = (hidden, all_heads), (all_heads, hidden)
        for side, last in {"encoder": 1, "decoder": 2}.items():
            distances = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            yield File(f"{distances}.0.bin", (self.heads, BUCKETS), (distances,), turned)
            for number in range(self.layers):
                block = f"{side}.block.{number}"
                matrices = {
                    "layer.0.SelfAttention.o": out_of,
                    f"layer.{last}.DenseReluDense.wi": (hidden, self.inner),
                    f"layer.{last}.DenseReluDense.wo": (self.inner, hidden),
                }
                if side == "encoder":
                    matrices |= {f"layer.0.SelfAttention.{name}": into for name in "qkv"}
                else:
                    matrices |= {f"layer.1.EncDecAttention.{name}": into for name in "qkv"}
                    matrices["layer.1.EncDecAttention.o"] = out_of
                    sides = tuple(f"{block}.layer.0.SelfAttention.{name}.weight" for name in "qkv")
                    file = f"{block}.layer.0.SelfAttention.qkv.weight.0.bin"
                    yield File(file, (hidden, 3, all_heads), sides, together)
                for name, size in matrices.items():
                    yield File(f"{block}.{name}.weight.0.bin", size, (f"{block}.{name}.weight",), turned)
                for layer in range(last + 1):
                    scale = f"{block}.layer.{layer}.layer_norm.weight"
                    yield File(f"{scale}.bin", (hidden,), (scale,))
            yield File(f"{side}.final_layer_norm.weight.bin", (hidden,), (f"{side}.final_layer_norm.weight",))

    def config(self) -> dict[str, dict[str, object]]:
        """Return the sections of config.ini (huggingface_t5_ckpt_convert.py:146-171)."""
        side = {
            "_name_or_path": "t5",
            "num_layers": self.layers,
            "d_model": self.hidden,
            "num_heads": self.heads,
            "d_kv": self.head_size,
            "d_ff": self.inner,
            "vocab_size": self.vocabulary,
            "relative_attention_num_buckets_or_max_pos_seq_len": BUCKETS,
            "feed_forward_proj": "relu",
            "decoder_start_token_id": START,
            "eos_token_id": self.end,
            "tie_word_embeddings": True,
            "weight_data_type": "fp16",
        }
        structure = {
            "t5_with_bias": False,
            "use_gated_activation": False,
            "position_embedding_type": "relative",
        }
        return {"encoder": side, "decoder": side, "structure": structure}

"""A GPT with random weights, both as FasterTransformer's files and as a model of transformers."""

from __future__ import annotations

import configparser
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

SEED = 20221
# GPT-2's own (transformers, GPT2Config.initializer_range). GPT-2 scales the last projections of a layer down;
# here they are not, so that the layers outweigh the embedding and answers do not merely repeat tokens.
STD = 0.02


@dataclass(frozen=True)
class Shape:
    """The size of a GPT-2; the default has 1.3 billion parameters.

    A head of FasterTransformer has 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224 or 256 numbers
    (FT v5.3 decoder_masked_multihead_attention.cu).
    """

    name: ClassVar[str] = "GPT"
    layers: int = 24
    hidden: int = 2048
    heads: int = 16
    positions: int = 1024
    vocabulary: int = 50304

    @property
    def end(self) -> int:
        """Return the end token. Its embedding is zero, so its logit is zero: never the greatest."""
        return self.vocabulary - 1

    @property
    def parameters(self) -> int:
        """Return the number of parameters; the head is the embedding."""
        return sum(math.prod(tensor.size) for tensor in tensors(self))

    def make(self, device: str) -> Any:
        """Return a GPT2LMHeadModel of this shape in fp16 without weights, whose answers never end early.

        An end token costs transformers a check at every step, so it gets none, to its advantage.
        """
        import torch
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
        with torch.device(device):
            made = GPT2LMHeadModel(described).half().eval()
        made.tie_weights()
        made.generation_config.eos_token_id = None
        made.generation_config.pad_token_id = self.end
        return made

    def fill(self, made: Any, folder: Path, seed: int = SEED) -> None:
        """Draw all weights into the model `made`, and into the new `folder` for FasterTransformer.

        The same seed gives the same weights on the same kind of device.
        """
        import torch

        folder.mkdir(parents=True)
        with (folder / "config.ini").open("w", encoding="utf-8") as file:
            config(self).write(file)
        device = made.device
        generator = torch.Generator(device).manual_seed(seed)
        parameters = dict(made.named_parameters())  # a tied head counts once
        with torch.no_grad():
            for tensor in tensors(self):
                drawn = torch.randn(tensor.size, generator=generator, device=device) * STD + tensor.around
                if tensor.name == "transformer.wte.weight":
                    drawn[self.end] = 0
                parameter = parameters.pop(tensor.name)
                assert parameter.shape == drawn.shape, tensor
                parameter.copy_(drawn)
                parameter.cpu().numpy().tofile(folder / tensor.file)
        assert not parameters, f"transformers has more tensors: {', '.join(parameters)}"


@dataclass(frozen=True)
class Tensor:
    """A tensor: its name in transformers, its file for FasterTransformer, and its size."""

    name: str
    file: str
    size: tuple[int, ...]

    @property
    def around(self) -> float:
        """Return the mean of its values: norms multiply by about one."""
        return float(self.file.endswith("layernorm.weight.bin"))


def tensors(shape: Shape) -> Iterator[Tensor]:
    """Yield all tensors for one GPU, as huggingface_gpt_convert.py writes them (FT v5.3, :126-176).

    Matrices are [in, out] in both (transformers' Conv1D), so nothing is transposed. The head is not among
    them: without its file FT takes the embedding (ParallelGptWeight.cc, shared embedding).
    """
    hidden, inner = shape.hidden, 4 * shape.hidden
    yield Tensor("transformer.wte.weight", "model.wte.bin", (shape.vocabulary, hidden))
    yield Tensor("transformer.wpe.weight", "model.wpe.bin", (shape.positions, hidden))
    layer = {
        "ln_1.weight": ("input_layernorm.weight", (hidden,)),
        "ln_1.bias": ("input_layernorm.bias", (hidden,)),
        "attn.c_attn.weight": ("attention.query_key_value.weight.0", (hidden, 3 * hidden)),
        "attn.c_attn.bias": ("attention.query_key_value.bias.0", (3 * hidden,)),
        "attn.c_proj.weight": ("attention.dense.weight.0", (hidden, hidden)),
        "attn.c_proj.bias": ("attention.dense.bias", (hidden,)),
        "ln_2.weight": ("post_attention_layernorm.weight", (hidden,)),
        "ln_2.bias": ("post_attention_layernorm.bias", (hidden,)),
        "mlp.c_fc.weight": ("mlp.dense_h_to_4h.weight.0", (hidden, inner)),
        "mlp.c_fc.bias": ("mlp.dense_h_to_4h.bias.0", (inner,)),
        "mlp.c_proj.weight": ("mlp.dense_4h_to_h.weight.0", (inner, hidden)),
        "mlp.c_proj.bias": ("mlp.dense_4h_to_h.bias", (hidden,)),
    }
    for number in range(shape.layers):
        for name, (file, size) in layer.items():
            yield Tensor(f"transformer.h.{number}.{name}", f"model.layers.{number}.{file}.bin", size)
    for part in ("weight", "bias"):
        yield Tensor(f"transformer.ln_f.{part}", f"model.final_layernorm.{part}.bin", (hidden,))


def config(shape: Shape) -> configparser.ConfigParser:
    """Return config.ini (huggingface_gpt_convert.py:105-120)."""
    written = configparser.ConfigParser()
    values = {
        "model_name": "gpt",
        "head_num": shape.heads,
        "size_per_head": shape.hidden // shape.heads,
        "inter_size": 4 * shape.hidden,
        "max_pos_seq_len": shape.positions,
        "num_layer": shape.layers,
        "vocab_size": shape.vocabulary,
        "start_id": shape.end,
        "end_id": shape.end,
        "weight_data_type": "fp16",
        "tensor_para_size": 1,
    }
    written["gpt"] = {key: str(value) for key, value in values.items()}
    return written

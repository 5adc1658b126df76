"""A LLaMA with random weights: a checkpoint of transformers, converted by the script of `invoke convert`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.topics.inference.measure import progress
from benchmarks.topics.inference.models import weights
from benchmarks.topics.inference.models.architecture import CHECKPOINT
from ftbuild import models
from ftbuild.host import shell

SEED = 20223
CONVERTER = Path(models.__file__).with_name("llama_weights.py")


@dataclass(frozen=True)
class Shape:
    """The size of a LLaMA; the default is that of LLaMA-2 7B (its config.json): 6.74 billion parameters."""

    name: ClassVar[str] = "LLaMA"
    family: ClassVar[str] = "llama"
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 32
    inner: int = 11008
    positions: int = 4096
    vocabulary: int = 32000

    @property
    def end(self) -> int:
        """Return the end token. Its row of the head is zero, so its logit is zero: never the greatest."""
        return self.vocabulary - 1

    @property
    def parameters(self) -> int:
        """Return the number of parameters; the head is not the embedding."""
        kv = self.hidden // self.heads * self.kv_heads
        layer = 2 * self.hidden * (self.hidden + kv) + 3 * self.hidden * self.inner + 2 * self.hidden
        return self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden

    @property
    def step(self) -> int:
        """Return the number of all but the embedding, of which a step reads a row."""
        return self.parameters - self.vocabulary * self.hidden

    def make(self, device: str) -> Any:
        """Return a LlamaForCausalLM in fp16 with random weights, whose answers never end early."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        described = LlamaConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            intermediate_size=self.inner,
            max_position_embeddings=self.positions,
            vocab_size=self.vocabulary,
            bos_token_id=self.end,
            eos_token_id=self.end,
        )
        torch.manual_seed(SEED)
        made = weights.made(LlamaForCausalLM, described, device)
        with torch.no_grad():
            made.lm_head.weight[self.end] = 0
        return made

    def fill(self, made: Any, folder: Path) -> None:
        """Write the checkpoint of `made` beside the new `folder` (`.../1-gpu`), and convert it into that."""
        start = time.monotonic()
        made.save_pretrained(folder.parent / CHECKPOINT)
        progress(f"checkpoint: {time.monotonic() - start:.1f} s")
        _convert(folder, 1)

    def share(self, folder: Path, shared: Path, gpus: int) -> None:
        """Convert the checkpoint beside `folder` into the new `shared` (`.../N-gpu`) for several GPUs."""
        _convert(shared, gpus)


def _convert(folder: Path, gpus: int) -> None:
    checkpoint, start = folder.parent / CHECKPOINT, time.monotonic()
    files = sorted(file.name for file in checkpoint.glob("*.safetensors"))
    options = ["--gpus", str(gpus), "--dtype", "fp16", *files]
    shell.run([sys.executable, str(CONVERTER), str(checkpoint), str(folder.parent), *options])
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e9
    rate = size / (time.monotonic() - start)
    progress(f"converted {size:.1f} GB at {rate:.2f} GB/s")

"""Hugging Face checkpoints in the layout that FasterTransformer's GPT-J or GPT-2 converter reads.

Runs inside the SDK image, alone: python3 relayout.py LAYOUT CHECKPOINT TARGET WEIGHT_FILE...

LAYOUT is `single` (all weights in one pytorch_model.bin), `codegen` (the same, and CodeGen becomes GPT-J) or
`mpt` (the same, and MPT becomes GPT-2).
WEIGHT_FILE are the names of the checkpoint's .safetensors or .bin files. Data types stay as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

Weights = dict[str, torch.Tensor]
# CodeGen was trained on 4 cores: the rows of qkv_proj are 4 blocks, each with its queries, values and keys in
# this order (transformers v4.46.3 modeling_codegen.py:156-165).
CORES = 4
QKV = ".attn.qkv_proj.weight"
# MPT's part of a block -> GPT-2's (transformers v4.46.3 modeling_mpt.py, modeling_gpt2.py).
MPT_BLOCK = {
    "norm_1": "ln_1",
    "attn.Wqkv": "attn.c_attn",
    "attn.out_proj": "attn.c_proj",
    "norm_2": "ln_2",
    "ffn.up_proj": "mlp.c_fc",
    "ffn.down_proj": "mlp.c_proj",
}


def read(folder: Path, names: Iterable[str]) -> Weights:
    """Return the tensors of all files."""
    weights: Weights = {}
    for name in names:
        file = folder / name
        if file.suffix == ".safetensors":
            weights.update(load_file(str(file)))
        else:
            weights.update(torch.load(str(file), map_location="cpu", weights_only=True))
    return weights


def single(config: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Return the checkpoint as it is."""
    return config, weights


def codegen(config: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Return a CodeGen model as the GPT-J model that computes the same; only qkv_proj differs.

    GPT-J's projections are [hidden, hidden] each, the rows ordered by heads; a block's heads follow those of
    the block before it (modeling_codegen.py, CodeGenAttention._split_heads).
    """
    if config["n_head"] % CORES:
        raise SystemExit(f"CodeGen's {config['n_head']} heads cannot be split into {CORES} equal blocks")
    split: Weights = {}
    for name, tensor in weights.items():
        if not name.endswith(QKV):
            split[name] = tensor
            continue
        hidden = tensor.shape[1]
        blocks = tensor.reshape(CORES, 3, hidden // CORES, hidden)
        for part, projection in enumerate(("q_proj", "v_proj", "k_proj")):
            key = name.replace("qkv_proj", projection)
            split[key] = blocks[:, part].reshape(hidden, hidden).contiguous()
    return {**config, "model_type": "gptj", "architectures": ["GPTJForCausalLM"]}, split


def mpt(config: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """Return an MPT model as the GPT-2 model of the same matrices, which GPT-2 stores [in, out].

    What MPT lacks is zero: biases, and the table of positions, of which one row must do. That its positions
    are ALiBi's is for config.ini to tell.
    """
    named = {"transformer.wte.weight": "wte", "transformer.norm_f.weight": "ln_f"}
    for layer in range(config["n_layers"]):
        for part, to in MPT_BLOCK.items():
            named[f"transformer.blocks.{layer}.{part}.weight"] = f"h.{layer}.{to}"
    weights = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}  # the table
    if strange := sorted(weights.keys() ^ named.keys()):
        raise SystemExit(f"not the weights of an MPT model without biases: {', '.join(strange[:5])}")
    tensors: Weights = {"wpe.weight": torch.zeros(1, config["d_model"])}
    for name, to in named.items():
        tensor = weights[name]
        if to == "wte":
            tensors["wte.weight"] = tensor
            continue
        tensors[f"{to}.weight"] = tensor.t().contiguous()
        tensors[f"{to}.bias"] = torch.zeros(tensor.shape[0], dtype=tensor.dtype)
    numbers = {"n_embd": "d_model", "n_layer": "n_layers", "n_head": "n_heads", "vocab_size": "vocab_size"}
    made = {name: config[of] for name, of in numbers.items()}
    return {**made, "n_positions": 1, "model_type": "gpt2", "architectures": ["GPT2Model"]}, tensors


LAYOUTS: dict[str, Callable[[dict[str, Any], Weights], tuple[dict[str, Any], Weights]]] = {
    "single": single,
    "codegen": codegen,
    "mpt": mpt,
}


def main(layout: str, folder: Path, target: Path, names: list[str]) -> None:
    """Read the checkpoint in `folder`, write config.json and pytorch_model.bin into `target`."""
    config = json.loads((folder / "config.json").read_text())
    config, weights = LAYOUTS[layout](config, read(folder, names))
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    torch.save(weights, target / "pytorch_model.bin")
    print(f"{len(weights)} tensors in {target / 'pytorch_model.bin'}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])

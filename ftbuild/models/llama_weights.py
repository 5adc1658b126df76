"""LLaMA of a Hugging Face checkpoint, as the weights that FasterTransformer's GPT-NeoX loads.

Runs inside the SDK image, with checkpoint_tensors.py beside it:
python3 llama_weights.py CHECKPOINT TARGET --gpus N --dtype fp16|fp32 WEIGHT_FILE...

WEIGHT_FILE are the names of the checkpoint's .safetensors or .bin files. Needs numpy; .bin files need torch.
A few tensors are in memory at a time, of .bin files one file, so that the model never is as a whole.

patches/ft/0420 lets GPT-NeoX compute LLaMA. Both rotate a head's first half with its second one, so queries
and keys stay in Hugging Face's order (FT v5.3 decoder_masked_multihead_attention_template.hpp:1332-1385;
transformers v4.46.3 modeling_llama.py, rotate_half).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from checkpoint_tensors import Array, Order, Tensors, by_columns, by_rows, contiguous, ordered, write

SECTION = "gptneox"
LINEAR = "linear"
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that decide where its weights go."""

    layers: int
    heads: int
    kv_heads: int
    hidden: int

    @property
    def head_size(self) -> int:
        """Values of one head."""
        return self.hidden // self.heads


def shape_of(settings: Mapping[str, Any]) -> Shape:
    """Return the shape of the model in a config.json."""
    heads = settings["num_attention_heads"]
    kv_heads = settings.get("num_key_value_heads") or heads
    return Shape(settings["num_hidden_layers"], heads, kv_heads, settings["hidden_size"])


def converted(
    read: Tensors, shape: Shape, settings: Mapping[str, Any], gpus: int
) -> Iterator[tuple[str, Array]]:
    """Yield name and array of every file; matrices are [in, out], and GPUs share them by columns or rows."""
    hidden, vocabulary, inner = shape.hidden, settings["vocab_size"], settings["intermediate_size"]
    tied = settings.get("tie_word_embeddings") or False
    yield "model.wte", read(TABLE, vocabulary, hidden)
    for layer in range(shape.layers):
        of = to = f"model.layers.{layer}."
        for norm in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            yield f"{to}{norm}", read(f"{of}{norm}", hidden)
        fused = _queries_keys_values(read, shape, f"{of}self_attn.")
        yield from by_columns(f"{to}attention.query_key_value.weight", fused, gpus)
        dense = read(f"{of}self_attn.o_proj.weight", hidden, hidden).T
        yield from by_rows(f"{to}attention.dense.weight", dense, gpus)
        gate, up = (read(f"{of}mlp.{name}_proj.weight", inner, hidden).T for name in ("gate", "up"))
        yield from by_columns(f"{to}mlp.dense_h_to_4h.weight", gate, gpus)
        yield from by_columns(f"{to}mlp.dense_h_to_4h_2.weight", up, gpus)
        down = read(f"{of}mlp.down_proj.weight", hidden, inner).T
        yield from by_rows(f"{to}mlp.dense_4h_to_h.weight", down, gpus)
    yield "model.final_layernorm.weight", read("model.norm.weight", hidden)
    yield "model.lm_head.weight", read(TABLE if tied else HEAD, vocabulary, hidden)


def _queries_keys_values(read: Tensors, shape: Shape, of: str) -> Array:
    """Return [hidden, 3, hidden]; keys and values that heads share are repeated for each of them."""
    kv_hidden = shape.kv_heads * shape.head_size
    queries = read(f"{of}q_proj.weight", shape.hidden, shape.hidden)
    shared = [read(f"{of}{name}_proj.weight", kv_hidden, shape.hidden) for name in ("k", "v")]
    repeated = [
        matrix.reshape(shape.kv_heads, shape.head_size, shape.hidden)
        .repeat(shape.heads // shape.kv_heads, axis=0)
        .reshape(shape.hidden, shape.hidden)
        for matrix in shared
    ]
    return np.stack([contiguous(matrix.T) for matrix in (queries, *repeated)], axis=1)


def config_of(settings: Mapping[str, Any], shape: Shape, dtype: str) -> dict[str, str]:
    """Return the values of config.ini."""
    # transformers 5 has base and scaling in one object, 4 has two keys.
    rotary = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    is_linear = LINEAR in (rotary.get("rope_type"), rotary.get("type"))
    values = {
        "model_name": "llama",
        "head_num": shape.heads,
        "size_per_head": shape.head_size,
        "inter_size": settings["intermediate_size"],
        "num_layer": shape.layers,
        "rotary_embedding": shape.head_size,
        "vocab_size": settings["vocab_size"],
        "start_id": _single_id(settings["bos_token_id"]),
        "end_id": _single_id(settings["eos_token_id"]),
        "use_gptj_residual": 0,
        "weight_data_type": dtype,
        "layernorm_eps": settings.get("rms_norm_eps", 1e-6),
        "use_rms_norm": 1,
        "activation_type": "gated-silu",
        "rotary_emb_base": rotary.get("rope_theta") or settings.get("rope_theta") or 10000.0,
        "rotary_scaling_factor": rotary["factor"] if is_linear else 1.0,
    }
    return {name: str(value) for name, value in values.items()}


def _single_id(token: int | list[int]) -> int:
    """Return a token's id, which may be the only one of a list."""
    return token if isinstance(token, int) else token[0]


def main(order: Order) -> None:
    """Convert a checkpoint."""
    settings = order.settings()
    shape = shape_of(settings)
    arrays = converted(Tensors(order.folder, order.files), shape, settings, order.gpus)
    write(order, SECTION, config_of(settings, shape, order.dtype), arrays)


if __name__ == "__main__":
    main(ordered(__doc__))

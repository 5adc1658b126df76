"""Which keys of a config.json change what transformers computes: each changed alone, with the same weights.

    PYTHON testing/key_effects.py FILE.json

PYTHON has torch and transformers. The file gets, for each family, a small configuration and every
change of one key that this transformers computes other numbers with; it keeps what other versions of
transformers found. Tests take it from there (tests/unit/models/test_key_effects.py): they need neither.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

VOCABULARY, PROMPT = 96, list(range(3, 19))
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": VOCABULARY}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 32, **IDS}
LLAMA = {
    "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 32, **IDS,
}  # fmt: skip
T5 = {
    "d_model": 32, "d_kv": 32, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 128, "decoder_start_token_id": 0,
    "eos_token_id": 1, "pad_token_id": 0, "vocab_size": VOCABULARY,
}  # fmt: skip
ATTENTION = {"attn_type": "multihead_attention", "alibi": True, "alibi_bias_max": 8, "clip_qkv": None}
# family -> model_type, class of the model, of its configuration, and the configuration
FAMILIES: Mapping[str, tuple[str, str, str, dict[str, Any]]] = {
    "gpt": ("gpt2", "GPT2LMHeadModel", "GPT2Config", GPT2),
    "opt": ("opt", "OPTForCausalLM", "OPTConfig", {
        "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 32, "word_embed_proj_dim": 64, **IDS,
    }),
    "bloom": ("bloom", "BloomForCausalLM", "BloomConfig", {
        "hidden_size": 64, "n_layer": 2, "n_head": 2, **IDS,
    }),
    "mpt": ("mpt", "MptForCausalLM", "MptConfig", {
        "d_model": 64, "n_layers": 2, "n_heads": 2, "max_seq_len": 32, "attn_config": ATTENTION, **IDS,
    }),
    "gptj": ("gptj", "GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 8}),
    "codegen": ("codegen", "CodeGenForCausalLM", "CodeGenConfig", {
        **GPT2, "n_head": 4, "n_embd": 128, "rotary_dim": 8,
    }),
    "gptneox": ("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 32, **IDS,
    }),
    "t5": ("t5", "T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}),
    "t5-relu": ("t5", "T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "relu"}),
    "t5-own head": ("t5", "T5ForConditionalGeneration", "T5Config", {
        **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    }),
    "t5-encoder": ("t5", "T5EncoderModel", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}),
    "mt5": ("mt5", "MT5ForConditionalGeneration", "MT5Config", T5),
    "llama": ("llama", "LlamaForCausalLM", "LlamaConfig", LLAMA),
    "bert": ("bert", "BertModel", "BertConfig", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 32, "type_vocab_size": 2, "vocab_size": VOCABULARY, "pad_token_id": 0,
    }),
}  # fmt: skip
# Values to try for a key whose usual one is of a type, besides multiples of a number.
TEXTS = (
    "relu", "gelu", "gelu_new", "silu", "tanh", "gated-silu", "gated-relu", "gated-gelu", "relative_key",
    "relative_key_query", "layernorm",
)  # fmt: skip
ANYTHING = (True, False, 0, 1, 2, 0.5, 32, "x", {"0": [0]}, {"type": "linear", "factor": 2.0})
ROTARY = (
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 16,
     "low_freq_factor": 1.0, "high_freq_factor": 4.0},
)  # fmt: skip
MORE: Mapping[str, tuple[Any, ...]] = {
    "rope_parameters": ROTARY,
    "rope_scaling": tuple({k: v for k, v in each.items() if k != "rope_theta"} for each in ROTARY),
    "attn_config": tuple(
        {**ATTENTION, **change}
        for change in (
            {"alibi": False}, {"alibi_bias_max": 4}, {"clip_qkv": 0.1}, {"softmax_scale": 0.3},
            {"qk_ln": True}, {"prefix_lm": True}, {"attn_uses_sequence_id": True},
            {"attn_type": "multiquery_attention"}, {"kv_n_heads": 1}, {"rope": True},
            {"sliding_window_size": 4},
        )
    ),
}  # fmt: skip
# Of no configuration's own, but read by some version or some model of transformers.
ELSEWHERE = dict.fromkeys(
    [
        "head_dim",
        "rope_theta",
        "partial_rotary_factor",
        "rope_parameters",
        "rope_scaling",
        "scale_decoder_outputs",
        "tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "num_key_value_heads",
        "n_inner",
        "pruned_heads",
        "chunk_size_feed_forward",
        "quantization_config",
        "is_decoder",
        "add_cross_attention",
        "position_embedding_type",
        "layer_norm_epsilon",
        "layer_norm_eps",
        "rms_norm_eps",
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "d_kv",
        "dense_act_fn",
        "is_gated_act",
    ]
)
# As far as fp32 rounds what one and the same model computes in another order.
SAME = 1e-6


def changes(base: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield key and value, each for a configuration that differs from `base` in it alone."""
    for key, value in {**ELSEWHERE, **usual}.items():
        tried = [*MORE.get(key, ())]
        if isinstance(value, bool):
            tried += [not value]
        elif isinstance(value, int | float):
            tried += (
                [value * 2, value * 100, 1e-3]
                if isinstance(value, float)
                else [value * 2, value + 1, value // 2]
            )
        elif isinstance(value, str):
            tried += TEXTS
        elif value is None:
            tried += ANYTHING
        yield from ((key, each) for each in tried if base.get(key, value) != each)


def computed(model: Any, t5: bool) -> Any:
    """Return the logits, or the last states, of a prompt."""
    import torch

    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        if t5 and hasattr(model, "decoder"):
            return model.eval()(input_ids=ids, decoder_input_ids=ids[:, :7]).logits
        found = model.eval()(input_ids=ids)
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


def effects(family: str) -> Iterator[tuple[str, Any]]:
    """Yield every change of a key after which transformers computes other numbers with the same weights."""
    import torch
    import transformers

    model_type, model_class, config_class, base = FAMILIES[family]
    make, configure = getattr(transformers, model_class), getattr(transformers, config_class)

    def model_of(settings: Mapping[str, Any]) -> Any:
        config = configure(**json.loads(json.dumps(settings)))
        config._attn_implementation = "eager"
        return make(config)

    torch.manual_seed(3)
    first = model_of(base)
    with torch.no_grad():
        for parameter in first.parameters():
            # As transformers draws them, so that the epsilon of a norm counts; biases and norms not 0 and 1.
            parameter.add_(0.02 * torch.randn_like(parameter))
    weights, t5 = first.state_dict(), model_type in ("t5", "mt5")
    wanted = computed(first, t5)
    usual = {k: v for k, v in first.config.to_dict().items() if not k.startswith("_") and k != "model_type"}
    names = {name: usual.get(key) for name, key in getattr(configure, "attribute_map", {}).items()}
    for key, value in changes(base, {**names, **usual}):
        try:
            other = model_of({**base, key: value})
            missing, _ = other.load_state_dict(weights, strict=False)
            if [name for name in missing if name != "lm_head.weight"]:
                continue
            found = computed(other, t5)
        except Exception:  # transformers refuses it, or the weights have other shapes
            continue
        if found.shape != wanted.shape or (found - wanted).abs().max() > SAME * wanted.abs().max():
            yield key, value


def main(file: Path) -> None:
    """Add what the installed transformers computes to the file."""
    import torch
    import transformers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # such small models wait for threads more than they compute
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    known = json.loads(file.read_text()) if file.is_file() else {}
    for family, (model_type, _, _, base) in FAMILIES.items():
        before = known.get(family, {}).get("changes", [])
        found = {json.dumps(each[:2], sort_keys=True): each[2] for each in before}
        for key, value in effects(family):
            found.setdefault(json.dumps([key, value], sort_keys=True), [])
            versions = found[json.dumps([key, value], sort_keys=True)]
            if transformers.__version__ not in versions:
                versions.append(transformers.__version__)
        known[family] = {
            "base": {"model_type": model_type, **base},
            "changes": [
                [*json.loads(change), sorted(versions)] for change, versions in sorted(found.items())
            ],
        }
        print(family, len(known[family]["changes"]))
    file.write_text(_text(known))


def _text(known: Mapping[str, Any]) -> str:
    """Return JSON with a line for each change."""
    families = []
    for family, content in known.items():
        rows = ",\n".join(f"   {json.dumps(each)}" for each in content["changes"])
        base = json.dumps(content["base"])
        families.append(f' {json.dumps(family)}: {{\n  "base": {base},\n  "changes": [\n{rows}\n  ]}}')
    return "{\n" + ",\n".join(families) + "\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

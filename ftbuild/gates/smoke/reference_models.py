"""The models that reference.py makes: for each its classes in transformers, its weights and their sizes.

Runs beside it inside the SDK image.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers

# A vocabulary that is not a multiple of 2, nor of the 8 that fp16 wants: FasterTransformer pads it.
HIDDEN, LAYERS, HEADS, POSITIONS, VOCABULARY = 128, 2, 2, 512, 509
START, END = 507, 508
# The most tokens of a text whose softmax is computed (models.yaml, t5-encoder).
LONGEST = 4096
# ALiBi gives each head a slope, by another rule where their number is no power of 2.
ALIBI_HEADS, ALIBI_HIDDEN = 6, 192
GPT2 = {
    "n_embd": HIDDEN,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": POSITIONS,
    "vocab_size": VOCABULARY,
    "bos_token_id": START,
    "eos_token_id": END,
    "initializer_range": 0.1,
}
T5 = {
    "d_model": HIDDEN,
    "d_kv": HIDDEN // HEADS,
    "d_ff": 2 * HIDDEN,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "vocab_size": VOCABULARY,
    "pad_token_id": START,
    "decoder_start_token_id": START,
    "eos_token_id": END,
}
NEOX = {
    "hidden_size": HIDDEN,
    "intermediate_size": 4 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS,
    "vocab_size": VOCABULARY,
    "bos_token_id": START,
    "eos_token_id": END,
    "initializer_range": 0.1,
    "hidden_act": "gelu_fast",
}
BERT = {
    "hidden_size": 6 * 32,
    "intermediate_size": 3 * HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": POSITIONS,
    "vocab_size": VOCABULARY,
    "initializer_range": 0.1,
    "hidden_act": "gelu_new",
}
# Two heads share keys and values; base and scaling of the positions are not the usual ones.
LLAMA = {
    "hidden_size": HIDDEN,
    "intermediate_size": 3 * HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "max_position_embeddings": POSITIONS,
    "vocab_size": VOCABULARY,
    "bos_token_id": START,
    "eos_token_id": END,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "rope_scaling": {"type": "linear", "factor": 2.0},
    "initializer_range": 0.1,
}
# T5 1.1 has a gate and a head of its own. Its query and its positions decide more than as they are drawn.
T5_FACTORS = {".q.weight": 8, "relative_attention_bias.weight": 8}
# As transformers initialises its models.
INITIALISED = {**GPT2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5}
GATED = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# Heads of 64, since FasterTransformer has attention kernels for few sizes only, and GELU's tanh form, the one
# that it computes (FT v5.3 activation_kernels.cu). Positions that the family learns limit a request.
# The factors, by the end of a parameter name, spread the logits, so that answers differ from runners-up
# in fp16 as well; T5's also let the attention outweigh the token that was there before.
MODELS: dict[str, tuple[str, str, dict[str, float], int | None, dict[str, Any]]] = {
    "gpt": ("GPT2Config", "GPT2LMHeadModel", {"ln_f.weight": 3}, POSITIONS, GPT2),
    # Three layers, so that one is neither the first nor the last.
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {"decoder.final_layer_norm.weight": 3},
        POSITIONS,
        {
            "hidden_size": HIDDEN,
            "ffn_dim": 3 * HIDDEN,
            "word_embed_proj_dim": HIDDEN,
            "num_hidden_layers": 3,
            "num_attention_heads": HEADS,
            "max_position_embeddings": POSITIONS,
            "vocab_size": VOCABULARY,
            "bos_token_id": START,
            "eos_token_id": END,
            "init_std": 0.1,
        },
    ),
    # ALiBi's limit is what config.json says, since the backend gets it from there.
    "bloom": (
        "BloomConfig",
        "BloomForCausalLM",
        # The embeddings are normalized, so smaller layers would repeat the token that was there before.
        {"ln_f.weight": 3, "attention.dense.weight": 5, "dense_4h_to_h.weight": 5},
        POSITIONS,
        {
            "hidden_size": ALIBI_HIDDEN,
            "n_layer": 3,
            "n_head": ALIBI_HEADS,
            "seq_length": POSITIONS,
            "vocab_size": VOCABULARY,
            "bos_token_id": START,
            "eos_token_id": END,
            "initializer_range": 0.1,
        },
    ),
    "mpt": (
        "MptConfig",
        "MptForCausalLM",
        {"norm_f.weight": 3},
        POSITIONS,
        {
            "d_model": ALIBI_HIDDEN,
            "n_layers": 3,
            "n_heads": ALIBI_HEADS,
            "max_seq_len": POSITIONS,
            "vocab_size": VOCABULARY,
            "bos_token_id": START,
            "eos_token_id": END,
            "initializer_range": 0.1,
        },
    ),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", {"ln_f.weight": 3}, None, {**GPT2, "rotary_dim": 32}),
    # CodeGen keeps its heads in four blocks, so it needs four of them (transformers modeling_codegen.py).
    "codegen": (
        "CodeGenConfig",
        "CodeGenForCausalLM",
        {"ln_f.weight": 3},
        None,
        {**GPT2, "n_embd": 2 * HIDDEN, "n_head": 2 * HEADS, "rotary_dim": 32},
    ),
    "gptneox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"final_layer_norm.weight": 3},
        None,
        NEOX,
    ),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"model.norm.weight": 3},
        None,
        LLAMA,
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {**T5_FACTORS, "shared.weight": 0.1, "decoder.final_layer_norm.weight": 30},
        None,
        T5,
    ),
    # Heads of 32 values, the fewest that there are, and a norm's epsilon as in BERT's own checkpoints.
    "bert": (
        "BertConfig",
        "BertModel",
        {},
        POSITIONS,
        BERT,
    ),
    # Heads are wider than the model, and the feed-forward layer has a gate, as in T5 1.1.
    "t5-encoder": (
        "T5Config",
        "T5EncoderModel",
        {".q.weight": 4, "relative_attention_bias.weight": 4},
        LONGEST,
        {
            "d_model": HIDDEN,
            "d_kv": 64,
            "d_ff": 2 * HIDDEN,
            "num_layers": 3,
            "num_heads": 4,
            "vocab_size": VOCABULARY,
            "pad_token_id": START,
            "decoder_start_token_id": START,
            "eos_token_id": END,
            "feed_forward_proj": "gated-gelu",
        },
    ),
}
# Of those whose epsilon is to be seen, as the numbers before the norms are small, like those of a model that
# transformers has initialised: its key in config.json, and the one that FasterTransformer has without a key.
WRONG_EPSILON = {
    "gpt-initialised": ("layer_norm_epsilon", 1e-6),
    "gptj-initialised": ("layer_norm_epsilon", 1e-6),
    "codegen-initialised": ("layer_norm_epsilon", 1e-6),
    "gptneox-initialised": ("layer_norm_eps", 1e-5),
    "t5-initialised": ("layer_norm_epsilon", 1e-6),
    "bert-small-norms": ("layer_norm_eps", 1e-6),
}
MODELS |= {
    "gpt-initialised": ("GPT2Config", "GPT2LMHeadModel", {}, POSITIONS, INITIALISED),
    "gptj-initialised": ("GPTJConfig", "GPTJForCausalLM", {}, None, {**INITIALISED, "rotary_dim": 32}),
    "codegen-initialised": (
        "CodeGenConfig",
        "CodeGenForCausalLM",
        {},
        None,
        {**INITIALISED, "n_embd": 2 * HIDDEN, "n_head": 2 * HEADS, "rotary_dim": 32},
    ),
    "gptneox-initialised": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {},
        None,
        {**NEOX, "initializer_range": 0.02, "layer_norm_eps": 1e-6},
    ),
    # T5 draws numbers around 1: these are as small as the others'.
    "t5-initialised": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"shared.weight": 0.02, ".o.weight": 0.02, ".wo.weight": 0.02},
        None,
        {**GATED, "layer_norm_epsilon": 1e-5},
    ),
    # Its norms come after the sums, which are small only if the norms before and the biases are.
    "bert-small-norms": (
        "BertConfig",
        "BertModel",
        {"LayerNorm.weight": 1e-3, ".bias": 0.01},
        POSITIONS,
        {**BERT, "initializer_range": 0.02, "layer_norm_eps": 1e-12},
    ),
    # Residuals one after the other: on several GPUs the biases are added to their sum.
    "gptneox-serial": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"final_layer_norm.weight": 3},
        None,
        {**NEOX, "use_parallel_residual": False},
    ),
    "mpt-head-112": (
        "MptConfig",
        "MptForCausalLM",
        {"norm_f.weight": 3},
        POSITIONS,
        {
            "d_model": HEADS * 112,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_seq_len": POSITIONS,
            "vocab_size": VOCABULARY,
            "bos_token_id": START,
            "eos_token_id": END,
            "initializer_range": 0.1,
        },
    ),
    "mt5": (
        "MT5Config",
        "MT5ForConditionalGeneration",
        {**T5_FACTORS, "shared.weight": 0.1, "lm_head.weight": 0.3},
        None,
        GATED,
    ),
}
# Each size has kernels of its own; those that are no power of two leave threads of a block idle. Others have
# heads of 32 and 64 values. Wider ones have smaller weights, so that their sums are of one size.
HEAD_SIZES = (48, 80, 96, 112, 128, 144, 160, 192, 224, 256)
MODELS |= {
    f"gptneox-head-{size}": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"final_layer_norm.weight": 3},
        None,
        {
            **NEOX,
            "hidden_size": HEADS * size,
            "intermediate_size": 2 * HEADS * size,
            "initializer_range": 0.1 * (HIDDEN / HEADS / size) ** 0.5,
            # Of 144 values a quarter are 36, which fp16 does not rotate right (models/rotation.py).
            "rotary_pct": 0.5 if size == 144 else 0.25,
        },
    )
    for size in HEAD_SIZES
}
# Layers and heads that divide by four, for as many GPUs; a model for each way in which FasterTransformer
# splits layers over stages (FT v5.3 ParallelGpt.cc, GptJ.cc, GptNeoX.cc, T5Decoding.cc), and LLaMA.
FOUR = 4
GPT_FOUR = {**GPT2, "n_embd": 2 * HIDDEN, "n_layer": FOUR, "n_head": FOUR}
MODELS |= {
    "gpt-four": ("GPT2Config", "GPT2LMHeadModel", {"ln_f.weight": 3}, POSITIONS, GPT_FOUR),
    "gptj-four": (
        "GPTJConfig",
        "GPTJForCausalLM",
        {"ln_f.weight": 3},
        None,
        {**GPT_FOUR, "rotary_dim": 32},
    ),
    "gptneox-four": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"final_layer_norm.weight": 3},
        None,
        {
            **NEOX,
            "hidden_size": 2 * HIDDEN,
            "intermediate_size": 8 * HIDDEN,
            "num_hidden_layers": FOUR,
            "num_attention_heads": FOUR,
        },
    ),
    "llama-four": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"model.norm.weight": 3},
        None,
        {
            **LLAMA,
            "hidden_size": 2 * HIDDEN,
            "num_hidden_layers": FOUR,
            "num_attention_heads": FOUR,
            "num_key_value_heads": FOUR // 2,
        },
    ),
    # Its last norm is larger than the family's, as with more layers answers are closer to their runners-up.
    "t5-four": (
        "T5Config",
        "T5ForConditionalGeneration",
        {**T5_FACTORS, "shared.weight": 0.1, "decoder.final_layer_norm.weight": 120},
        None,
        {**T5, "num_layers": FOUR, "num_heads": FOUR},
    ),
}
ENCODERS = ("bert", "t5-encoder", "bert-small-norms")


def make(name: str, seed: int) -> transformers.PreTrainedModel:
    """Return a model with random weights, norms included unless `initialised` keeps transformers'."""
    config, model, factors, _, arguments = MODELS[name]
    torch.manual_seed(seed)
    made = getattr(transformers, model)(getattr(transformers, config)(**arguments)).eval()
    for module in made.modules():
        if isinstance(module, torch.nn.GELU):  # MPT's, which no configuration changes
            module.approximate = "tanh"
    with torch.no_grad():
        for parameter_name, parameter in made.named_parameters():
            if parameter.dim() == 1 and (name not in WRONG_EPSILON or name in ENCODERS):
                parameter += 0.1 * torch.randn_like(parameter)
            for end, factor in factors.items():
                if parameter_name.endswith(end):
                    parameter *= factor
    return made


def with_wrong_epsilon(name: str, model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """Return a copy of a model whose norms have the epsilon of `WRONG_EPSILON`."""
    key, epsilon = WRONG_EPSILON[name]
    settings = copy.deepcopy(model.config)
    setattr(settings, key, epsilon)
    changed = type(model)(settings).eval()
    changed.load_state_dict(model.state_dict())
    return changed

"""A small random checkpoint, made with transformers, and its answers.

Runs inside the SDK image, alone: python3 reference.py MODEL FOLDER CASES.json ANSWERS.json [INT8.json]

A model is a family, or one of the few more (models.yaml, extra) that show what the families' own cannot.

Cases are `{"cases": {name: {"prompts": [[id, ...], ...], "length": N, "beams": B}}}`. The answers hold the
model's constants and, for every prompt, N tokens with their log-probabilities, the second best token of each
step and its distance (natural logarithm). Checkpoints are drawn seed after seed until no answer hangs on a
distance that rounding could turn, so that fp32 must agree token by token, and answers are no mere repetition.

The last file gets the answers with the checkpoint's matrices as int8; the checkpoint is written as it is. In
this case some answer's confidence must tell int8 weights from others, as the tokens are mostly the same.

Of an encoder the answers are one vector for each prompt of one beam: the mean of its states, of length 1.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

MIN_GAP = 0.01
MIN_TOKENS = 5
# The same where the epsilon of the norms is to be seen, which turns close calls only: fp32 alone is compared.
MIN_GAP_IN_FP32 = 3e-4
# What a row keeps of each step: so many tokens, no further behind than bf16 may err (golden.TOLERANCE).
NEAR, NEAR_GAP = 8, 0.8
SEEDS = 500
# Between the log-probabilities of one answer with int8 weights and without; fp16 is off by 0.04 at most.
MIN_INT8_EFFECT = 0.2
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
# The others would only take longer to be clear.
CASES_BY_EPSILON = ("one", "eight")
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
# The largest difference of two vectors' numbers that still shows which model gave them.
MIN_VECTOR_EFFECT = 1e-3


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


def continued(
    model: transformers.PreTrainedModel, prompt: list[int], length: int, beams: int
) -> dict[str, Any]:
    """Return the tokens that follow one prompt; with one beam also the confidence in each."""
    input_ids = torch.tensor([prompt])
    options = {"max_new_tokens": length, "num_beams": beams, "do_sample": False, "pad_token_id": END}
    with torch.no_grad():
        made = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    skipped = 1 if model.config.is_encoder_decoder else len(prompt)
    row: dict[str, Any] = {"tokens": made.sequences[0, skipped:].tolist()}
    if beams == 1:
        best = [torch.log_softmax(step[0].double(), 0).topk(NEAR) for step in made.scores]
        row["log_probs"] = [step.values[0].item() for step in best]
        row["runner_up"] = [step.indices[1].item() for step in best]
        row["gap"] = [(step.values[0] - step.values[1]).item() for step in best]
        row["near"] = [
            [
                (token, behind)
                for token, value in zip(step.indices.tolist(), step.values.tolist(), strict=True)
                if 0 < (behind := step.values[0].item() - value) <= NEAR_GAP
            ]
            for step in best
        ]
    return row


def answers(
    model: transformers.PreTrainedModel, cases: dict[str, Any], gap: float | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every case; nothing once one ends early or has a runner-up closer than `gap`."""
    by_case: dict[str, list[dict[str, Any]]] = {}
    for name, case in cases.items():
        by_case[name] = []
        for prompt in case["prompts"]:
            row = continued(model, prompt, case["length"], case["beams"])
            if gap is not None and (END in row["tokens"] or min(row.get("gap", [gap])) < gap):
                return {}
            by_case[name].append(row)
    return by_case


def clear_answers(
    model: transformers.PreTrainedModel, cases: dict[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every case; nothing when one hangs on rounding, or all repeat a few tokens."""
    by_case = answers(model, cases, MIN_GAP)
    varied = all(max(len(set(row["tokens"])) for row in rows) >= MIN_TOKENS for rows in by_case.values())
    return by_case if varied else {}


def rounded_to_int8(weight: torch.Tensor) -> torch.Tensor:
    """Return the numbers that FasterTransformer computes with in place of a matrix of [outputs, inputs].

    Each output has a scale, 1/128 of its largest input; halves are rounded away from zero (FT v5.3
    cutlass_preprocessors.cc, symmetric_quantize). int8 number and scale are multiplied in fp16
    (mma_tensorop_dequantizer.h:260-274).
    """
    scale = weight.abs().amax(dim=1, keepdim=True) / 128
    steps = (weight / scale).nan_to_num()  # an output without inputs
    whole = (steps.sign() * (steps.abs() + 0.5).floor()).clamp(-128, 127)
    return (whole.half() * scale.half()).float()


def with_int8_weights(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """Return a copy of a model whose layers compute with int8 weights; tables and head are as before."""
    changed = copy.deepcopy(model)
    head = changed.get_output_embeddings()
    with torch.no_grad():
        for module in changed.modules():
            if isinstance(module, torch.nn.Linear) and module is not head:
                module.weight.copy_(rounded_to_int8(module.weight))
            elif isinstance(module, transformers.pytorch_utils.Conv1D):  # GPT-2's, [inputs, outputs]
                module.weight.copy_(rounded_to_int8(module.weight.T).T)
    return changed


def told_apart(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Return whether the confidence in some answer that both give shows which one gave it."""
    return any(
        abs(sum(row["log_probs"]) - sum(other["log_probs"])) >= MIN_INT8_EFFECT
        for row, other in zip(rows, others, strict=True)
        if row["tokens"] == other["tokens"]
    )


def all_answers(
    model: transformers.PreTrainedModel, cases: dict[str, Any], with_int8: bool
) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the answers, and those with int8 weights if asked for; nothing when they will not do."""
    plain = clear_answers(model, cases)
    if not plain or not with_int8:
        return [plain] if plain else []
    quantized = clear_answers(with_int8_weights(model), cases)
    return [plain, quantized] if quantized and told_apart(plain["eight"], quantized["eight"]) else []


def vectors(model: transformers.PreTrainedModel, cases: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Return an embedding for each prompt of the cases of one beam."""
    by_case = {}
    for name, case in cases.items():
        if case["beams"] == 1:
            with torch.no_grad():
                states = [model(torch.tensor([prompt])).last_hidden_state[0] for prompt in case["prompts"]]
            means = [torch.nn.functional.normalize(each.mean(0), dim=0) for each in states]
            by_case[name] = [mean.tolist() for mean in means]
    return by_case


def answers_by_epsilon(
    name: str, model: transformers.PreTrainedModel, cases: dict[str, Any]
) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the answers when they hang on the epsilon, and on no rounding of fp32; else nothing."""
    selected = {case: cases[case] for case in CASES_BY_EPSILON}
    references = answers(model, selected, MIN_GAP_IN_FP32)
    if not references:
        return []
    others = answers(with_wrong_epsilon(name, model), selected)
    tokens = [[[row["tokens"] for row in rows] for rows in each.values()] for each in (references, others)]
    return [references] if tokens[0] != tokens[1] else []


def clear_model(
    name: str, cases: dict[str, Any], with_int8: bool
) -> tuple[int, transformers.PreTrainedModel, list[dict[str, Any]]]:
    """Return seed, model and answers of the first seed whose answers are clear; SystemExit for none."""
    for seed in range(SEEDS):
        model = make(name, seed)
        if name in WRONG_EPSILON:
            references = answers_by_epsilon(name, model, cases)
        else:
            references = all_answers(model, cases, with_int8)
        if references:
            return seed, model, references
    raise SystemExit(f"none of {SEEDS} seeds gives clear answers")


def encoder(name: str, cases: dict[str, Any]) -> tuple[transformers.PreTrainedModel, dict[str, Any]]:
    """Return an encoder and its vectors; SystemExit when they do not tell an epsilon that is to be seen."""
    model = make(name, 0)
    references = vectors(model, cases)
    if name in WRONG_EPSILON:
        others = vectors(with_wrong_epsilon(name, model), cases)
        effect = max(
            (torch.tensor(rows) - torch.tensor(others[case])).abs().max().item()
            for case, rows in references.items()
        )
        if effect < MIN_VECTOR_EFFECT:
            raise SystemExit(f"the wrong epsilon changes the embeddings by {effect:.1e} only")
    return model, references


def main(name: str, folder: Path, cases_file: Path, *files: Path) -> None:
    """Write a checkpoint and its answers; of a model that generates, those of the first clear seed."""
    torch.set_num_threads(1)  # for matrices this small, threads only wait for each other
    cases = json.loads(cases_file.read_text())["cases"]
    references: list[dict[str, Any]]
    if name in ENCODERS:
        seed = 0
        model, row = encoder(name, cases)
        references = [row]
    else:
        seed, model, references = clear_model(name, cases, with_int8=len(files) > 1)
    # The GPT-J converter reads pytorch_model.bin and nothing else.
    model.save_pretrained(folder, safe_serialization=False)
    layers = model.config.num_hidden_layers
    constants = {"vocab_size": VOCABULARY, "start_id": START, "end_id": END, "layers": layers}
    for file, rows in zip(files, references, strict=True):
        record = {**constants, "max_length": MODELS[name][3], "seed": seed, "cases": rows}
        file.write_text(json.dumps(record) + "\n")
    print(f"{name}: seed {seed}")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:6]))

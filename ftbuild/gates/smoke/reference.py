"""A small random checkpoint, made with transformers, and its answers.

Runs inside the SDK image, alone: python3 reference.py FAMILY FOLDER CASES.json ANSWERS.json

Cases are `{"cases": {name: {"prompts": [[id, ...], ...], "length": N, "beams": B}}}`. The answers hold the
model's constants and, for every prompt, N tokens with their log-probabilities, the second best token of each
step and its distance (natural logarithm). Checkpoints are drawn seed after seed until no answer hangs on a
distance that rounding could turn, so that fp32 must agree token by token, and answers are no mere repetition.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

MIN_GAP = 0.01
MIN_TOKENS = 5
SEEDS = 500
HIDDEN, LAYERS, HEADS, POSITIONS, VOCABULARY = 128, 2, 2, 128, 512
START, END = 510, 511
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
# Heads of 64, since FasterTransformer has attention kernels for few sizes only, and GELU's tanh form, the one
# that it computes (FT v5.3 activation_kernels.cu). Positions that the family learns limit a request.
# The factors, by the end of a parameter name, spread the logits, so that answers differ from runners-up
# in fp16 as well; T5's also let the attention outweigh the token that was there before.
MODELS: dict[str, tuple[str, str, dict[str, float], int | None, dict[str, Any]]] = {
    "gpt": ("GPT2Config", "GPT2LMHeadModel", {"ln_f.weight": 3}, POSITIONS, GPT2),
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
        {
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
        },
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "shared.weight": 0.1,
            "decoder.final_layer_norm.weight": 30,
            ".q.weight": 8,
            "relative_attention_bias.weight": 8,
        },
        None,
        {
            "d_model": HIDDEN,
            "d_kv": HIDDEN // HEADS,
            "d_ff": 2 * HIDDEN,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "vocab_size": VOCABULARY,
            "pad_token_id": START,
            "decoder_start_token_id": START,
            "eos_token_id": END,
        },
    ),
}


def make(family: str, seed: int) -> transformers.PreTrainedModel:
    """Return a model with random weights, biases and norms among them."""
    config, model, factors, _, arguments = MODELS[family]
    torch.manual_seed(seed)
    made = getattr(transformers, model)(getattr(transformers, config)(**arguments)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
            for end, factor in factors.items():
                if name.endswith(end):
                    parameter *= factor
    return made


def continued(
    model: transformers.PreTrainedModel, prompt: list[int], length: int, beams: int
) -> dict[str, Any]:
    """Return the tokens that follow one prompt; with one beam also the confidence in each."""
    given = torch.tensor([prompt])
    options = {"max_new_tokens": length, "num_beams": beams, "do_sample": False, "pad_token_id": END}
    with torch.no_grad():
        made = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    skipped = 1 if model.config.is_encoder_decoder else len(prompt)
    row: dict[str, Any] = {"tokens": made.sequences[0, skipped:].tolist()}
    if beams == 1:
        best = [torch.log_softmax(step[0].double(), 0).topk(2) for step in made.scores]
        row["log_probs"] = [step.values[0].item() for step in best]
        row["runner_up"] = [step.indices[1].item() for step in best]
        row["gap"] = [(step.values[0] - step.values[1]).item() for step in best]
    return row


def answers(model: transformers.PreTrainedModel, cases: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every case."""
    return {
        name: [continued(model, prompt, case["length"], case["beams"]) for prompt in case["prompts"]]
        for name, case in cases.items()
    }


def is_clear(rows: list[dict[str, Any]]) -> bool:
    """Return whether no row ends early or depends on rounding, and not all rows repeat a few tokens."""
    clear = all(END not in row["tokens"] and min(row.get("gap", [MIN_GAP])) >= MIN_GAP for row in rows)
    return clear and max(len(set(row["tokens"])) for row in rows) >= MIN_TOKENS


def main(family: str, folder: Path, cases_file: Path, answers_file: Path) -> None:
    """Write the checkpoint of the first seed whose answers are clear, and these answers."""
    torch.set_num_threads(1)  # for matrices this small, threads only wait for each other
    cases = json.loads(cases_file.read_text())["cases"]
    for seed in range(SEEDS):
        model = make(family, seed)
        found = answers(model, cases)
        if all(is_clear(rows) for rows in found.values()):
            break
    else:
        raise SystemExit(f"none of {SEEDS} seeds gives clear answers")
    # The GPT-J converter reads pytorch_model.bin and nothing else.
    model.save_pretrained(folder, safe_serialization=False)
    constants = {"vocab_size": VOCABULARY, "start_id": START, "end_id": END, "layers": LAYERS}
    record = {**constants, "max_length": MODELS[family][3], "seed": seed, "cases": found}
    answers_file.write_text(json.dumps(record) + "\n")
    print(f"{family}: seed {seed}")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]))

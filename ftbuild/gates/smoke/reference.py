"""A small random checkpoint, made with transformers, and its answers.

Runs inside the SDK image, with reference_models.py beside it:

    python3 reference.py MODEL FOLDER CASES.json ANSWERS.json [INT8.json]

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
from reference_models import (
    ENCODERS,
    END,
    MODELS,
    START,
    VOCABULARY,
    WRONG_EPSILON,
    make,
    with_wrong_epsilon,
)

MIN_GAP = 0.01
MIN_TOKENS = 5
# The same where the epsilon of the norms is to be seen, which turns close calls only: fp32 alone is compared.
MIN_GAP_IN_FP32 = 3e-4
# What a row keeps of each step: so many tokens, no further behind than bf16 may err (golden.TOLERANCE).
NEAR, NEAR_GAP = 8, 0.8
SEEDS = 500
# Between the log-probabilities of one answer with int8 weights and without; fp16 is off by 0.04 at most.
MIN_INT8_EFFECT = 0.2
# The others would only take longer to be clear.
CASES_BY_EPSILON = ("one", "eight")
# The largest difference of two vectors' numbers that still shows which model gave them.
MIN_VECTOR_EFFECT = 1e-3


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

"""Answers: the reference's tokens, and the effect of a request's options."""

from __future__ import annotations

from typing import Any

import pytest

from ftbuild.client import golden
from ftbuild.client.connection import Client, Refused, Unanswered
from ftbuild.client.tensors import ANSWER, BAD_WORDS, LOG_PROB, STOP_WORDS, Tokens
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.job import BF16, DTYPES, INT8
from ftbuild.gates.smoke.served import Served, prompts
from ftbuild.models import config_pbtxt

TOP_K = 8
SEEDS = range(1, 9)
# Sums of log-probabilities in fp32: rounding of float32 over a few hundred additions.
FP32_LOG_PROB = 1e-3
# The same for an answer with int8 weights: twice what fp16 is off by, half of what int8 makes of some answer
# (reference.py, MIN_INT8_EFFECT).
INT8_LOG_PROB = 0.1


def needs(served: Served, name: str) -> None:
    if not served.dialect.takes(name):
        pytest.skip(f"{served.variant.model} of this release takes no {name}")


def log_prob(served: Served, prompt: Tokens) -> tuple[list[int], float]:
    """Return the greedy answer to one prompt, and the sum of its tokens' log-probabilities."""
    outputs = served.outputs([prompt], runtime_top_k=1, is_return_log_probs=True)
    (tokens,) = served.dialect.answers(outputs, [prompt], golden.LENGTH, served.expected.end_id)
    return tokens, float(outputs[LOG_PROB].flat[0])


@pytest.mark.variants(dtypes=(*DTYPES, INT8))
@pytest.mark.parametrize("case", ["one", "eight", "long"])
def test_answers_equal_the_references(served: Served, client: Client, case: str) -> None:
    served.check(case, served.ask(prompts(case), client=client, runtime_top_k=1))


@pytest.mark.variants(dtypes=(BF16,))
def test_bf16_tokens_equal_the_references(served: Served) -> None:
    served.check("eight", served.ask(prompts("eight"), runtime_top_k=1))


@pytest.mark.over_gpus
def test_several_gpus_answer_as_one(served: Served) -> None:
    served.check("eight", served.ask(prompts("eight"), runtime_top_k=1))


def test_log_probabilities_equal_the_references(served: Served) -> None:
    needs(served, "is_return_log_probs")
    row = served.row()
    tokens, log_probability = log_prob(served, prompts("one")[0])
    if tokens != list(row.tokens):
        pytest.skip(
            "the answer differs from the reference within the tolerance, so its sum is that of another text"
        )
    reference = sum(row.log_probs)
    if abs(log_probability - reference) > max(served.tolerance, FP32_LOG_PROB) * len(tokens):
        raise SmokeError(
            f"{LOG_PROB} is {log_probability:.4f}, the reference's sum is {reference:.4f}",
            hint="the tokens are right, so the sampling kernels sum wrongly or the sum is not handed out: "
            "patches/ft/0181, 0183",
        )


@pytest.mark.variants(dtypes=(INT8,))
def test_int8_weights_show_in_the_log_probabilities(served: Served) -> None:
    """Distinguish them from fp16 weights, which give mostly the same tokens."""
    needs(served, "is_return_log_probs")
    errors = []
    for prompt, row in zip(prompts("eight"), served.expected.cases["eight"], strict=True):
        tokens, log_probability = log_prob(served, prompt)
        if tokens == list(row.tokens):
            errors.append(log_probability - sum(row.log_probs))
    if not errors or max(map(abs, errors)) > INT8_LOG_PROB:
        shown = ", ".join(f"{error:.3f}" for error in errors) or "no answer is the reference's"
        raise SmokeError(
            f"{LOG_PROB} of int8 weights are off by more than {INT8_LOG_PROB}: {shown}",
            hint="is int8_mode read, and does the kernel multiply with the right scales? patches/ft/0440",
        )


def test_the_best_beam_equals_the_references(served: Served) -> None:
    if served.variant.dtype != "fp32":
        pytest.skip("beams that are close change places in fp16")
    if not served.searches_with_beams:
        pytest.skip("the image is built without beams")
    outputs = served.outputs(prompts("beams"), beam_width=golden.BEAMS)
    if outputs[ANSWER].shape[1] != golden.BEAMS:
        raise SmokeError(f"{outputs[ANSWER].shape[1]} beams came back, {golden.BEAMS} were asked for")
    answers = served.dialect.answers(outputs, prompts("beams"), golden.LENGTH, served.expected.end_id)
    served.check("beams", answers)


def test_beams_that_the_image_is_built_without_are_refused_by_name(served: Served) -> None:
    needs(served, "beam_width")
    if served.searches_with_beams:
        pytest.skip("the image is built with beams")
    try:
        served.outputs(prompts("beams"), beam_width=golden.BEAMS)
    except Unanswered:
        raise
    except Refused as refused:
        if "without beams" in refused.what:
            return
        raise SmokeError(
            f"beams were refused without a word of their being left out: {refused.what}",
            hint="patches/backend/0300",
        ) from refused
    raise SmokeError("an image without beams answered a search with them", hint="patches/backend/0300")


@pytest.mark.parametrize("among", ["a_few", "all"])
def test_a_seed_repeats_its_sample_and_others_differ(served: Served, among: str) -> None:
    needs(served, "random_seed")
    options: dict[str, Any] = {"runtime_top_k": TOP_K}
    if among == "all":
        # More than a block of the kernel has: its sum of probabilities must not break (patches/ft/0141).
        needs(served, "is_return_log_probs")
        options = {"runtime_top_k": served.expected.vocab_size, "is_return_log_probs": True}

    def sample(seed: int) -> list[list[int]]:
        return served.ask(prompts("eight"), random_seed=seed, **options)

    try:
        first = {seed: sample(seed) for seed in SEEDS}
    except Refused as limited:
        if among == "all" and "runtime_top_k" in limited.what:
            pytest.skip(f"this release samples among fewer: {limited.what}")
        raise
    for seed, answers in first.items():
        if sample(seed) != answers:
            raise SmokeError(
                f"seed {seed} gives two different samples", hint="the sampling state is not reset"
            )
    if all(answers == first[SEEDS[0]] for answers in first.values()):
        raise SmokeError(
            f"{len(SEEDS)} seeds give one sample", hint="random_seed or runtime_top_k is not read"
        )


def test_a_stop_word_ends_the_answer(served: Served) -> None:
    needs(served, STOP_WORDS)
    answered = served.ask(prompts("one"), runtime_top_k=1)[0]
    word = answered[3:5]
    end = next(at for at in range(2, len(answered) + 1) if answered[at - 2 : at] == word)
    outputs = served.outputs(prompts("one"), runtime_top_k=1, words={STOP_WORDS: [word]})
    (tokens,) = served.dialect.answers(outputs, prompts("one"), golden.LENGTH, served.expected.end_id)
    # What follows is end_id, of T5 also 0 (FT v5.3 T5Decoding.cc, output_ids).
    if tokens[:end] != answered[:end] or not set(tokens[end:]) <= {served.expected.end_id, 0}:
        raise SmokeError(
            f"stop word {word}: {tokens} came back, expected {answered[:end]}",
            hint="the stop criterion or the list's layout is wrong (FT v5.3 stop_criteria_kernels.cu), or "
            "tokens of an earlier request stand behind the end (patches/ft/0185)",
        )


def test_a_bad_word_is_avoided(served: Served) -> None:
    needs(served, BAD_WORDS)
    row = served.row()
    banned = row.tokens[0]
    (tokens,) = served.ask(prompts("one"), runtime_top_k=1, words={BAD_WORDS: [[banned]]})
    allowed = {row.runner_up[0], *([] if served.tolerance == 0 else set(tokens[:1]) - {banned})}
    if tokens[0] not in allowed or banned in tokens:
        raise SmokeError(f"bad word {banned}: {tokens} came back, {row.runner_up[0]} should be first")


@pytest.mark.variants(dtypes=("fp32",), decoupled=True)
def test_a_streamed_answer_grows_to_the_whole(served: Served) -> None:
    request = served.dialect.request(prompts("one"), golden.LENGTH, runtime_top_k=1)
    parts: list[list[list[int]]] = []
    # Servers before 23.06 mark no response as the last one, so a whole answer ends the stream, too.
    for outputs in served.clients["grpc"].stream(config_pbtxt.MODEL, request):
        parts.append(served.dialect.answers(outputs, prompts("one"), golden.LENGTH, served.expected.end_id))
        if parts[-1][0] == list(served.row().tokens):
            break
    if len(parts) < 2:
        raise SmokeError(f"{len(parts)} responses came back, one per token was expected")
    served.check("one", parts[-1])

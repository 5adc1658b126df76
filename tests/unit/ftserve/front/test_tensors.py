"""A model's configuration, and the tensors of requests and answers, as a server gets and sends them."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from ftserve.front import tensors
from ftserve.front.tensors import Answer, Ask, Facts

GPT = {"input_ids": "UINT32", "input_lengths": "UINT32", "request_output_len": "UINT32"}
T5 = {"input_ids": "UINT32", "sequence_length": "UINT32", "max_output_len": "UINT32"}


def config(inputs: dict[str, str], outputs: list[str], **more: Any) -> dict[str, Any]:
    """Return the JSON form of a ModelConfig; an input that ends with ? is optional."""
    return {
        "input": [
            {"name": name.rstrip("?"), "data_type": f"TYPE_{kind}", "optional": name.endswith("?")}
            for name, kind in inputs.items()
        ],
        "output": [{"name": name} for name in outputs],
        **more,
    }


def facts(inputs: dict[str, str], outputs: tuple[str, ...] = ("output_ids",), **more: Any) -> Facts:
    return tensors.facts(config(inputs, list(outputs), **more))


def as_lists(request: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    return {name: (str(value.dtype), value.tolist()) for name, value in request.items()}


def test_a_models_configuration_is_read() -> None:
    found = facts(
        {**GPT, "random_seed?": "UINT64"},
        ("output_ids", "sequence_length"),
        model_transaction_policy={"decoupled": True},
        max_batch_size=8,
        parameters={
            "max_output_len": {"string_value": "512"},
            "max_batch_tokens": {"string_value": "1024"},
        },
    )
    assert found == Facts(
        inputs={**GPT, "random_seed": "UINT64"},
        required=frozenset(GPT),
        outputs=frozenset({"output_ids", "sequence_length"}),
        decoupled=True,
        longest_answer=512,
        max_rows=8,
        batch_tokens=1024,
    )
    assert (found.seed_type, found.generates, found.embeds, found.repeats_prompt) == (
        "UINT64",
        True,
        False,
        True,
    )


def test_what_a_configuration_leaves_out_is_no_limit_and_one_row() -> None:
    found = facts(GPT)
    assert (found.decoupled, found.longest_answer, found.batch_tokens, found.max_rows) == (
        False,
        None,
        None,
        1,
    )
    assert found.seed_type == ""
    assert facts(GPT, max_batch_size=1).max_rows == 1


@pytest.mark.parametrize("written", ["", "many", "-5", "1.5", "\u0663", "12345678901"])
def test_a_limit_that_is_no_number_is_none(written: str) -> None:
    assert facts(GPT, parameters={"max_output_len": {"string_value": written}}).longest_answer is None


def test_ten_digits_are_a_limit() -> None:
    found = facts(GPT, parameters={"max_output_len": {"string_value": "1234567890"}})
    assert found.longest_answer == 1234567890


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind"),
    [
        (GPT, ("output_ids",), "generates"),
        (T5, ("output_ids",), "generates"),
        ({"input_ids": "UINT32", "input_lengths": "UINT32"}, ("embeddings",), "embeds"),
        ({"input_ids": "UINT32", "input_lengths": "UINT32"}, ("output_hidden_state",), None),
        ({"input_ids": "UINT32", "input_lengths": "UINT32", "more": "FP32"}, ("embeddings",), None),
        ({"input_lengths": "UINT32", "request_output_len": "UINT32"}, ("output_ids",), None),
        ({"input_ids": "UINT32", "request_output_len": "UINT32"}, ("output_ids",), None),
        ({"input_ids": "UINT32", "sequence_length": "UINT32"}, ("output_ids",), None),
        ({"input_ids": "UINT32"}, ("output_ids",), None),
    ],
)
def test_a_model_is_known_by_its_inputs_and_outputs(
    inputs: dict[str, str], outputs: tuple[str, ...], kind: str | None
) -> None:
    found = facts(inputs, outputs)
    assert {name for name in ("generates", "embeds") if getattr(found, name)} == {kind} - {None}
    assert found.repeats_prompt is ("input_lengths" in inputs)


def test_a_request_has_the_prompt_the_length_and_what_is_asked_for() -> None:
    model = facts({**GPT, "runtime_top_k?": "UINT32", "temperature?": "FP32", "end_id?": "UINT32"})
    ask = Ask([5, 6, 7], 16, 2, {"runtime_top_k": 4, "temperature": 0.5})
    assert as_lists(tensors.request(model, ask)) == {
        "input_ids": ("uint32", [[5, 6, 7]]),
        "input_lengths": ("uint32", [[3]]),
        "request_output_len": ("uint32", [[16]]),
        "runtime_top_k": ("uint32", [[4]]),
        "temperature": ("float32", [[0.5]]),
        "end_id": ("uint32", [[2]]),
    }


def test_a_request_to_an_encoder_decoder_has_its_names() -> None:
    assert as_lists(tensors.request(facts(T5), Ask([5, 6], 3, None))) == {
        "input_ids": ("uint32", [[5, 6]]),
        "sequence_length": ("uint32", [[2]]),
        "max_output_len": ("uint32", [[3]]),
    }


# What the model of 22.03 wants in every request, and the value that changes nothing: beams, penalties and
# sampling as they are without a wish (the backend's docs/gpt_guide.md and ParallelGptTritonModel.cc).
WANTED = {
    "runtime_top_k": ("UINT32", 1),
    "runtime_top_p": ("FP32", 0.0),
    "beam_search_diversity_rate": ("FP32", 0.0),
    "temperature": ("FP32", 1.0),
    "len_penalty": ("FP32", 1.0),
    "repetition_penalty": ("FP32", 1.0),
    "presence_penalty": ("FP32", 0.0),
    "random_seed": ("INT32", 0),
    "is_return_log_probs": ("BOOL", False),
    "beam_width": ("UINT32", 1),
}
NUMPY = {"UINT32": "uint32", "FP32": "float32", "INT32": "int32", "BOOL": "bool"}


def test_inputs_that_a_model_must_have_get_values_that_change_nothing() -> None:
    model = facts({**GPT, **{name: kind for name, (kind, _) in WANTED.items()}})
    found = as_lists(tensors.request(model, Ask([1], 1, None)))
    assert {name: found[name] for name in WANTED} == {
        name: (NUMPY[kind], [[value]]) for name, (kind, value) in WANTED.items()
    }
    assert tensors.request(model, Ask([1], 1, None, {"runtime_top_k": 7}))["runtime_top_k"].item() == 7


def test_inputs_that_are_optional_stay_out() -> None:
    model = facts({**GPT, **{f"{name}?": kind for name, (kind, _) in WANTED.items()}, "start_id?": "UINT32"})
    assert set(tensors.request(model, Ask([1], 1, 5))) == set(GPT)


@pytest.mark.parametrize(
    ("inputs", "end_id", "expected"),
    [
        ({"end_id": "UINT32", "start_id": "UINT32"}, 9, {"end_id": 9, "start_id": 9}),
        ({"end_id?": "UINT32", "start_id?": "UINT32"}, 9, {"end_id": 9}),
        ({"end_id?": "UINT32"}, None, {}),
        ({"end_id?": "UINT32"}, 0, {"end_id": 0}),
        ({}, 9, {}),
    ],
)
def test_the_end_token_is_sent_where_the_model_takes_it(
    inputs: dict[str, str], end_id: int | None, expected: dict[str, int]
) -> None:
    found = tensors.request(facts({**GPT, **inputs}), Ask([1], 1, end_id))
    assert {name: found[name].item() for name in found if name not in GPT} == expected


def test_stop_words_are_their_tokens_and_their_ends() -> None:
    """The backend's layout (docs/gpt_guide.md, stop_words_list): [1, 2, n], filled up with -1."""
    ask = Ask([1], 1, None, {}, [[5, 6, 7], [8]])
    found = tensors.request(facts({**GPT, "stop_words_list?": "INT32"}), ask)
    assert as_lists(found)["stop_words_list"] == ("int32", [[[5, 6, 7, 8], [3, 4, -1, -1]]])
    assert "stop_words_list" not in tensors.request(facts(GPT), ask)
    without = tensors.request(facts({**GPT, "stop_words_list?": "INT32"}), Ask([1], 1, None))
    assert "stop_words_list" not in without


@pytest.mark.parametrize(
    ("kind", "numpy"),
    [("UINT64", "uint64"), ("INT32", "int32"), ("UINT32", "uint32"), ("INT64", "int64")],
)
def test_a_seed_has_the_models_type(kind: str, numpy: str) -> None:
    found = tensors.request(facts({**GPT, "random_seed?": kind}), Ask([1], 1, None, {"random_seed": 7}))
    assert as_lists(found)["random_seed"] == (numpy, [[7]])


def test_vectors_are_asked_for_in_rows_of_one_length() -> None:
    model = facts({"input_ids": "UINT32", "input_lengths": "INT32"}, ("embeddings",))
    assert as_lists(tensors.vector_request(model, [[1, 2, 3], [4]])) == {
        "input_ids": ("uint32", [[1, 2, 3], [4, 0, 0]]),
        "input_lengths": ("int32", [[3], [1]]),
    }


def told(model: Facts, ask: Ask, *responses: tuple[list[int], int | None]) -> list[tuple[list[int], bool]]:
    """Return the new tokens of each response, and whether the answer is whole then."""
    answer = Answer(model, ask)
    found = []
    for row, length in responses:
        outputs = {"output_ids": memoryview(array("I", row))}
        if length is not None:
            outputs["sequence_length"] = memoryview(array("I", [length]))
        found.append((answer.new_tokens(outputs), answer.whole))
    return found


def test_new_tokens_come_after_the_prompt_up_to_the_length_that_the_server_says() -> None:
    responses = ([1, 2, 7, 0, 0], 3), ([1, 2, 7, 8, 0], 4), ([1, 2, 7, 8, 9], 5)
    assert told(facts(GPT), Ask([1, 2], 3, None), *responses) == [([7], False), ([8], False), ([9], True)]


def test_an_encoder_decoders_answer_begins_at_once() -> None:
    assert told(facts(T5), Ask([1, 2], 4, 0), ([7, 8, 0, 5], 4)) == [([7, 8, 0], True)]


def test_an_answer_ends_with_its_end_token_and_at_its_limit() -> None:
    assert told(facts(GPT), Ask([1], 5, 9), ([1, 7, 9, 9, 9, 9], None)) == [([7, 9], True)]
    assert told(facts(GPT), Ask([1], 2, 9), ([1, 7, 8, 5, 5, 5], None)) == [([7, 8], True)]
    assert told(facts(GPT), Ask([9], 2, 9), ([9, 7, 8], 3)) == [([7, 8], True)]
    assert told(facts(GPT), Ask([1], 3, 9), ([1, 9], 2), ([1, 9], 2)) == [([9], True), ([], True)]

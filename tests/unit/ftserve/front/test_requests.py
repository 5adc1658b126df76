"""Bodies of requests: what they mean for the backend, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from ftserve.front import bodies
from ftserve.front.failures import Failure
from ftserve.front.generation import Rates
from ftserve.front.requests import Chat, Completion, Embeddings, OldCompletion
from ftserve.front.sampling import Sampling

KNOWN = ("runtime_top_k", "runtime_top_p", "temperature", "random_seed", "repetition_penalty")


def completion(**more: Any) -> Completion:
    return Completion.model_validate({"model": "m", "prompt": "a", **more})


def refused(form: type[Any] = Completion, **body: Any) -> Failure:
    """Return the refusal of a body, as a client gets it."""
    with pytest.raises(Failure) as found:
        bodies.read(form, "application/json", json.dumps(body).encode())
    return found.value


def inputs(**more: Any) -> dict[str, float]:
    return completion(**more).sampling.inputs([*KNOWN, "presence_penalty"], "UINT64")


@pytest.mark.parametrize("wish", [{"temperature": 0}, {"top_p": 0}, {"top_k": 1}])
def test_each_way_to_want_the_best_token_is_one(wish: dict[str, float]) -> None:
    assert inputs(**wish) == {"runtime_top_k": 1}


def test_without_a_wish_all_tokens_are_drawn_from_with_a_new_seed() -> None:
    first, second = inputs(), inputs()
    assert {**first, "random_seed": 0} == {"runtime_top_k": 0, "runtime_top_p": 1.0, "random_seed": 0}
    assert first["random_seed"] != second["random_seed"]


def test_wishes_reach_the_backend() -> None:
    assert inputs(temperature=0.5, top_p=0.9, top_k=40, seed=7, presence_penalty=-1) == {
        "temperature": 0.5,
        "runtime_top_p": 0.9,
        "runtime_top_k": 40,
        "random_seed": 7,
        "presence_penalty": -1,
    }


@pytest.mark.parametrize(("kind", "most"), [("INT32", 2**31), ("UINT64", 2**64)])
@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63 - 1])
def test_every_seed_fits_the_releases_type(kind: str, most: int, seed: int) -> None:
    found = Sampling(seed=seed).inputs(KNOWN, kind)["random_seed"]
    assert 0 <= found < most


def test_choices_of_one_seed_differ() -> None:
    assert [Sampling(seed=5).inputs(KNOWN, "UINT64", n)["random_seed"] for n in range(3)] == [5, 6, 7]


@pytest.mark.parametrize(
    "wish",
    [
        {"frequency_penalty": 0.1},
        {"presence_penalty": 1},
        {"presence_penalty": 1, "repetition_penalty": 1.1},
        {"seed": 1, "known": ("runtime_top_k", "runtime_top_p", "temperature")},
    ],
)
def test_what_the_model_cannot_do_is_refused(wish: dict[str, Any]) -> None:
    known = wish.pop("known", KNOWN)
    with pytest.raises(Failure) as refused:
        Sampling(**wish).inputs(known, "UINT64")
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")


@pytest.mark.parametrize(
    "harmless",
    [
        {"logprobs": None, "echo": False, "best_of": 1, "suffix": "", "logit_bias": {}, "user": "me"},
        {"temperature": None, "stop": None, "stream": None, "n": None, "max_tokens": None},
    ],
)
def test_what_asks_for_nothing_is_fine(harmless: dict[str, Any]) -> None:
    assert completion(**harmless).prompts == ["a"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_logprobs", 2), ("best_of", 2), ("suffix", "x"), ("logit_bias", {"5": -100}),
     ("tools", [{}]), ("response_format", {"type": "json_object"}), ("best_of", True)],
)  # fmt: skip
def test_what_cannot_be_honoured_is_named(name: str, value: Any) -> None:
    found = refused(prompt="a", model="m", **{name: value})
    assert (found.param, found.status, found.code) == (name, 400, "unsupported_parameter")


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 2.1}, {"temperature": "1"}, {"top_p": -0.1}, {"max_tokens": 0}, {"max_tokens": True},
     {"n": 17}, {"prompt": None}, {"prompt": [-1]}, {"prompt": [1.5]}, {"prompt": {"a": 1}},
     {"stream": "yes"},
     {"temperature": float("nan")}, {"seed": 2**63}, {"unknown": 1}],
)  # fmt: skip
def test_values_out_of_range_are_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        completion(**wrong)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_are_texts_or_tokens_one_or_several(prompt: Any, prompts: Any) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_tokens_are_rated_only_where_a_client_says_so() -> None:
    assert [completion(logprobs=value).rates for value in (None, False)] == [None, None]
    assert completion(logprobs=0, echo=True).rates == Rates("logprobs", 0, prompt=True)
    assert completion(max_tokens=0, echo=True).max_tokens == 0
    for wrong in ({"logprobs": 6}, {"logprobs": True}, {"max_tokens": 0}):
        assert refused(prompt="a", model="m", **wrong).param == next(iter(wrong))
    messages = [{"role": "user", "content": "a"}]
    chat = Chat.model_validate({"messages": messages, "logprobs": True, "top_logprobs": 20})
    assert chat.rates == Rates("logprobs", 20)
    assert Chat.model_validate({"messages": messages, "logprobs": False}).rates is None
    for wrong in ({"top_logprobs": 1}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": 1}):
        assert refused(Chat, messages=messages, **wrong).param in ("logprobs", "top_logprobs")


def test_ends_of_answers_are_wishes() -> None:
    wish = completion(stop_token_ids=[5], min_tokens=2, ignore_eos=True).wish("prompt", 3)
    assert (wish.ends, wish.min_tokens, wish.endless) == ((5,), 2, True)
    with pytest.raises(Failure, match="more than max_tokens"):
        completion(min_tokens=4).wish("prompt", 3)


def test_the_answers_of_one_request_are_limited() -> None:
    assert len(completion(prompt=["a"] * 4, n=16).prompts) == 4
    for prompt in ([], ["a"] * 5):
        with pytest.raises(Failure, match="at most 64 answers"):
            _ = completion(prompt=prompt, n=16).prompts


def test_stop_sequences_are_few_short_and_not_empty() -> None:
    assert completion(stop="x").stops == ["x"]
    assert completion().stops == completion(stop="").stops == completion(stop=[]).stops == []
    for stop in (["a"] * 5, [""], "a" * 1001, ["a" * 1001], [1], 5):
        assert refused(prompt="a", stop=stop).param == "stop"


def test_messages_become_one_text_each() -> None:
    body = Chat.model_validate(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "be kind"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            ],
            "max_tokens": 3,
            "max_completion_tokens": 5,
        }
    )
    assert [message.for_template() for message in body.messages] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "ab"},
    ]
    assert body.longest == 5


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "a"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]},
        {"role": "assistant", "content": None},
    ],
)
def test_messages_are_text_only(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Chat.model_validate({"model": "m", "messages": [message]})


@pytest.mark.parametrize(
    ("given", "inputs"),
    [("a", ["a"]), (["a", ""], ["a", ""]), ([5, 0], [[5, 0]]), ([[5], [0, 1]], [[5], [0, 1]])],
)
def test_inputs_of_vectors_are_texts_or_token_ids(given: Any, inputs: Any) -> None:
    assert Embeddings.model_validate({"model": "m", "input": given}).inputs == inputs


@pytest.mark.parametrize(
    ("more", "param"),
    [({"input": []}, "input"), ({"dimensions": 64}, "dimensions")],
)
def test_what_no_vector_can_be_is_refused_by_name(more: dict[str, Any], param: str) -> None:
    body = Embeddings.model_validate({"model": "m", "input": "a", **more})
    with pytest.raises(Failure) as refused:
        _ = body.inputs
    assert (refused.value.status, refused.value.param) == (400, param)


def test_vectors_of_too_many_inputs_are_refused() -> None:
    assert refused(Embeddings, input=["a"] * 2049).param == "input"


@pytest.mark.parametrize("given", [[-1], [2**31], [1, "a"], [[1], "a"], 5, None, {"input": "a"}])
def test_inputs_of_another_form_are_malformed(given: Any) -> None:
    with pytest.raises(ValidationError):
        Embeddings.model_validate({"model": "m", "input": given})


def test_old_clients_may_ask_for_log_probabilities_that_they_do_not_get() -> None:
    assert bodies.read(Completion, "application/json", b'{"prompt": "a", "logprobs": 2}').prompts == ["a"]
    old = b'{"prompt": "a", "model": "m", "logprobs": 2}'
    assert bodies.read(OldCompletion, "application/json", old).prompts == ["a"]
    assert completion(logprobs=2).rates is not None


@pytest.mark.parametrize(
    ("name", "harmless", "other"),
    [
        ("top_k", -1, -2),
        ("min_p", 0, 0.1),
        ("length_penalty", 1.0, 1.1),
        ("skip_special_tokens", True, False),
        ("spaces_between_special_tokens", True, 1),
        ("use_beam_search", False, True),
        ("bad_words", [], ["a"]),
        ("include_stop_str_in_output", False, True),
        ("stream_options", {"continuous_usage_stats": False}, {"continuous_usage_stats": True}),
        ("logit_bias", {}, {"5": -100}),
        ("prompt_logprobs", None, 1),
        ("guided_json", None, {}),
        ("truncate_prompt_tokens", None, 5),
        ("nobody_knows_it", None, 1),
    ],
)
def test_what_other_servers_take_as_nothing_is_nothing_here(name: str, harmless: Any, other: Any) -> None:
    assert completion(**{name: harmless}).prompts == ["a"]
    found = refused(prompt="a", **{name: other})
    assert (found.status, (found.param or "").split(".")[0]) == (400, name)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"prompt": ["a", 5]}, "prompt", "prompt.1: Input should be a valid string"),
        ({"prompt": [-1]}, "prompt", "prompt.0: Input should be greater than or equal to 0"),
        ({"prompt": None}, "prompt", "prompt: Field required"),
        ({"prompt": 5}, "prompt", "a text, a list of texts, a list of token ids"),
        ({"prompt": "a", "max_tokens": 2**32}, "max_tokens", "less than or equal to 2147483647"),
        ({"prompt": "a", "stop": [1]}, "stop", "a text, or a list of at most 4 texts"),
        ({"prompt": "a", "frobnicate": 1}, "frobnicate", "unknown argument: frobnicate"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(body: dict[str, Any], param: str, words: str) -> None:
    found = refused(**body)
    assert found.param == param
    assert words in found.message
    assert ":t" not in found.message


def test_a_part_that_is_no_text_is_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    found = refused(Chat, messages=[{"role": "user", "content": [image]}])
    assert (found.param, found.message) == ("messages", "messages.0.content.0.type: Input should be 'text'")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"frequency_penalty": 0.1}, "frequency_penalty: the model's backend has none"),
        ({"presence_penalty": 1, "repetition_penalty": 1.1}, "repetition_penalty: not together with"),
        ({"presence_penalty": 1}, "presence_penalty: this model has no such input"),
        ({"repetition_penalty": 1.1, "known": ()}, "repetition_penalty: this model has no such input"),
        ({"temperature": 0, "known": ()}, "top_k: this model has no such input"),
        ({"top_p": 0.5, "known": ("runtime_top_k",)}, "top_p: this model has no such input"),
        ({"temperature": 0.5, "known": KNOWN[:2]}, "temperature: this model has no such input"),
    ],
)
def test_a_wish_that_the_model_has_no_input_for_is_named(wish: dict[str, Any], said: str) -> None:
    known = wish.pop("known", KNOWN)
    with pytest.raises(Failure) as refused:
        Sampling(**wish).inputs(known, "UINT64")
    assert refused.value.message.startswith(said)
    assert refused.value.param == said.partition(":")[0]


def test_a_wish_for_the_usual_is_none() -> None:
    """The model need not have the inputs for it."""
    usual = Sampling(temperature=1, top_p=1, presence_penalty=0, frequency_penalty=0, repetition_penalty=1)
    assert set(usual.inputs(KNOWN, "UINT64")) == {"runtime_top_k", "runtime_top_p", "random_seed"}
    assert Sampling(repetition_penalty=1.5, top_k=1).inputs(KNOWN, "UINT64") == {
        "repetition_penalty": 1.5,
        "runtime_top_k": 1,
    }
    assert not any(
        Sampling(**wish).greedy for wish in ({}, {"top_k": 2}, {"temperature": 0.1}, {"top_p": 0.1})
    )


@pytest.mark.parametrize(("kind", "bits"), [("INT32", 31), ("UINT64", 63), ("", 31)])
def test_drawn_seeds_are_as_wide_as_the_type(kind: str, bits: int) -> None:
    drawn = [Sampling().inputs(KNOWN, kind)["random_seed"] for _ in range(60)]
    assert 2 ** (bits - 3) < max(drawn) < 2**bits
    assert Sampling(seed=2**bits + 3).inputs(KNOWN, kind, 2)["random_seed"] == 5

"""Parameters that this service lacks: what asks for nothing is taken, and the rest is named.

The values are the other servers' defaults: clients send them without anybody's wish.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ftserve.front import bodies
from ftserve.front.failures import Failure
from ftserve.front.requests import Chat, Completion, Embeddings
from testing import ROOT

REQUIRED: dict[type[Any], dict[str, Any]] = {
    Completion: {"prompt": "a", "model": "m"},
    Chat: {"messages": [{"role": "user", "content": "a"}], "model": "m"},
    Embeddings: {"input": "a", "model": "m"},
}
# Names whose values change no answer.
IGNORED = {
    "cache_prompt", "cache_salt", "metadata", "parallel_tool_calls", "priority", "prompt_cache_key",
    "prompt_cache_retention", "request_id", "safety_identifier", "service_tier", "store", "user",
}  # fmt: skip
# Name -> values that ask for nothing, and one that asks for something.
BOTH: dict[str, tuple[list[Any], Any]] = {
    "allowed_token_ids": ([[]], [5]),
    "bad_words": ([[]], ["a"]),
    "best_of": ([1, 1.0], 2),
    "detokenize": ([True], False),
    "dynatemp_range": ([0, 0.0], 0.5),
    "grammar": ([""], "root ::= x"),
    "include_reasoning": ([False, True], "yes"),
    "include_stop_str_in_output": ([False], True),
    "length_penalty": ([1], 2),
    "logit_bias": ([{}], {"5": 1}),
    "logits_processors": ([[]], ["x"]),
    "lora_path": ([""], "x"),
    "min_p": ([0], 1),
    "mirostat": ([0], 1),
    "modalities": ([["text"]], ["text", "audio"]),
    "no_stop_trim": ([False], True),
    "prompt_logprobs": ([0], 1),
    "reasoning_effort": (["none"], "low"),
    "repeat_penalty": ([1], 2),
    "response_format": ([{"type": "text"}], {"type": "json_object"}),
    "return_token_ids": ([False], True),
    "return_tokens_as_token_ids": ([False], True),
    "separate_reasoning": ([False, True], 1),
    "skip_special_tokens": ([True], False),
    "spaces_between_special_tokens": ([False, True], 0),
    "truncate_prompt_tokens": ([], 1),
    "typical_p": ([1], 0.5),
    "use_beam_search": ([False], True),
    "verbosity": (["medium"], "low"),
    "vllm_xargs": ([{}], {"a": 1}),
    **dict.fromkeys(
        (
            "bad_words_list", "cache_control", "ebnf", "guided_choice", "guided_decoding_backend",
            "guided_grammar", "guided_json", "guided_regex", "guided_whitespace_pattern", "json_schema",
            "kv_transfer_params", "regex", "structural_tag", "structured_outputs", "thinking_token_budget",
        ),
        ([], "x"),
    ),
}  # fmt: skip
OF: dict[type[Any], dict[str, tuple[list[Any], Any]]] = {
    Completion: {
        **BOTH,
        "add_special_tokens": ([True], False),
        "functions": ([[]], [{}]),
        "prompt_embeds": ([], "x"),
        "suffix": ([""], "x"),
        "tool_choice": (["none"], "auto"),
        "tools": ([[]], [{}]),
        "top_logprobs": ([0], 1),
    },
    Chat: {
        **BOTH,
        "add_generation_prompt": ([True], False),
        "add_special_tokens": ([False], True),
        "audio": ([], {}),
        "chat_template": ([], "x"),
        "chat_template_kwargs": ([{}], {"a": 1}),
        "continue_final_message": ([False], True),
        "documents": ([[]], [{}]),
        "echo": ([False], True),
        "function_call": (["none"], "auto"),
        "functions": ([[]], [{}]),
        "mm_processor_kwargs": ([{}], {"a": 1}),
        "prediction": ([], {}),
        "suffix": ([""], "x"),
        "tool_choice": (["none", "auto"], "required"),
        "tools": ([[]], [{}]),
        "web_search_options": ([], {}),
    },
    Embeddings: {
        "add_special_tokens": ([True], False),
        "normalize": ([], True),
        "truncate_prompt_tokens": ([], 1),
    },
}
EVERY = [(form, name) for form, names in OF.items() for name in names]


def read(form: type[Any], **more: Any) -> Any:
    return bodies.read(form, "application/json", json.dumps({**REQUIRED[form], **more}).encode())


@pytest.mark.parametrize(("form", "name"), EVERY)
def test_what_asks_for_nothing_is_taken_and_what_asks_for_something_is_named(
    form: type[Any], name: str
) -> None:
    harmless, other = OF[form][name]
    for value in [None, *harmless]:
        assert read(form, **{name: value}) == read(form)
    with pytest.raises(Failure) as refused:
        read(form, **{name: other})
    assert refused.value.message == f"{name}: not supported by this service"
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize("form", [Completion, Chat])
def test_no_other_name_is_taken_as_nothing(form: type[Any]) -> None:
    assert set(form._nothing) == set(OF[form])
    assert form._ignored == IGNORED


@pytest.mark.parametrize("form", REQUIRED)
def test_names_that_change_no_answer_are_taken_with_any_value(form: type[Any]) -> None:
    for name in IGNORED if form is not Embeddings else {"priority", "request_id", "user"}:
        assert read(form, **{name: {"any": ["value"]}}) == read(form)


def test_every_name_that_is_ignored_is_in_the_documentation() -> None:
    said = (ROOT / "docs/ftserve/openai.md").read_text()
    for form in REQUIRED:
        assert {name for name in form._ignored if f"`{name}`" not in said} == set()


def test_what_is_left_out_hides_nothing_that_follows() -> None:
    for nothing in ({"temperature": None}, {"user": "me"}, {"echo": False}):
        assert read(Completion, **nothing, top_p=0.5).top_p == 0.5
        with pytest.raises(Failure, match="unknown argument: frobnicate"):
            read(Completion, **nothing, frobnicate=1)


def test_how_a_stream_ends_is_taken_by_its_own_names() -> None:
    assert read(Chat, stream_options={"include_usage": True}).stream_options.include_usage
    harmless = {"include_obfuscation": True, "continuous_usage_stats": False}
    assert not read(Chat, stream_options=harmless).stream_options.include_usage
    for options, named in (
        ({"continuous_usage_stats": True}, "stream_options.continuous_usage_stats"),
        ({"include_usage": 1}, "stream_options"),
        ({"more": 1}, "stream_options.more"),
    ):
        with pytest.raises(Failure) as refused:
            read(Chat, stream_options=options)
        assert refused.value.param == named


LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    ("model", ["m" * 4096], ["m" * 4097, 5]),
    ("max_tokens", [1, 2**31 - 1], [0, 2**31, 1.0, True, "1"]),
    ("temperature", [0, 2, 0.5], [-0.01, 2.01, "1", True]),
    ("top_p", [0, 1], [-0.01, 1.01, "1"]),
    ("top_k", [-1, 0, 1024], [-2, 1025, 1.0, True]),
    ("presence_penalty", [-2, 2], [-2.01, 2.01]),
    ("frequency_penalty", [-2, 2], [-2.01, 2.01]),
    ("repetition_penalty", [0.01, 2], [0, 2.01]),
    ("seed", [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63, 1.0]),
    ("n", [1, 16], [0, 17, True]),
    ("stream", [True, False], [1, "true"]),
    ("stop", ["x" * 1000, ["a"] * 4, "", []], ["x" * 1001, ["a"] * 5, ["x" * 1001], [""], [1], 1]),
]


@pytest.mark.parametrize("form", [Completion, Chat])
@pytest.mark.parametrize(("name", "taken", "refused"), LIMITS, ids=[name for name, _, _ in LIMITS])
def test_every_number_and_text_has_its_range(
    form: type[Any], name: str, taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        assert getattr(read(form, **{name: value}), name) == (0 if value == -1 else value)
    for value in refused:
        with pytest.raises(Failure) as found:
            read(form, **{name: value})
        assert found.value.param == name


def test_nobody_asks_for_anything_by_default() -> None:
    for form in (Completion, Chat):
        body = bodies.read(
            form,
            "application/json",
            json.dumps({k: v for k, v in REQUIRED[form].items() if k != "model"}).encode(),
        )
        assert {name for name in form.model_fields if getattr(body, name) is not None} == (
            {"prompt"} if form is Completion else {"messages"}
        )
        assert (body.stops, body.choices, body.streams) == ([], 1, False)
    embeddings = read(Embeddings)
    assert (embeddings.encoding_format, embeddings.dimensions) == ("float", None)
    assert read(Embeddings, encoding_format="base64").encoding_format == "base64"
    with pytest.raises(Failure):
        read(Embeddings, encoding_format="int8")


@pytest.mark.parametrize(
    ("prompt", "what"),
    [
        (["a"] * 2049, "prompt: List should have at most 2048 items"),
        ([[1]] * 2049, "prompt: List should have at most 2048 items"),
        ([1] * 131_073, "prompt: List should have at most 131072 items"),
        ([[2**31]], "prompt.0.0: Input should be less than 2147483648"),
        ([True], "prompt.0: Input should be a valid integer"),
        ([1.0], "prompt.0: Input should be a valid integer"),
        ([{"type": "text", "text": "a"}], "prompt: it must be a text, a list of texts"),
    ],
)
def test_prompts_have_their_limits(prompt: Any, what: str) -> None:
    with pytest.raises(Failure) as refused:
        read(Completion, prompt=prompt)
    assert refused.value.message.startswith(what)
    assert read(Completion, prompt=[2**31 - 1, 0]).prompts == [[2**31 - 1, 0]]


def message(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": "a", **fields}


def test_messages_are_one_to_many_of_known_roles() -> None:
    for role in ("system", "developer", "user", "assistant"):
        (found,) = read(Chat, messages=[message(role=role)]).messages
        assert found.for_template()["role"] == ("system" if role == "developer" else role)
    assert len(read(Chat, messages=[message()] * 2048).messages) == 2048
    for wrong in ([], [message()] * 2049, [message(role="tool")], ["a"], "a"):
        with pytest.raises(Failure) as refused:
            read(Chat, messages=wrong)
        assert refused.value.param == "messages"


def test_what_clients_send_back_of_an_answer_is_left_out_where_it_is_empty() -> None:
    kept = message(
        role="assistant", refusal=None, annotations=[], audio=None, tool_calls=[], function_call={}, x=""
    )
    (found,) = read(Chat, messages=[kept]).messages
    assert found.for_template() == {"role": "assistant", "content": "a"}
    (named,) = read(Chat, messages=[message(name="bob")]).messages
    assert named.for_template() == {"role": "user", "content": "a", "name": "bob"}
    (empty,) = read(Chat, messages=[message(content=[])]).messages
    assert empty.for_template()["content"] == ""
    parts = [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]
    (several,) = read(Chat, messages=[message(content=parts)]).messages
    assert several.for_template()["content"] == "ab"
    for wrong, said in (
        (message(tool_calls=[{"id": "1"}]), "unknown argument: messages.0.tool_calls"),
        (message(content=5), "messages.0.content: it must be a text, or a list of parts of the type text"),
        (
            message(content=["a"]),
            "messages.0.content: it must be a text, or a list of parts of the type text",
        ),
        (message(content=parts * 513), "messages.0.content: List should have at most 1024 items"),
    ):
        with pytest.raises(Failure) as refused:
            read(Chat, messages=[wrong])
        assert refused.value.message.startswith(said)


def test_the_newer_name_of_the_length_counts() -> None:
    assert read(Chat, max_tokens=3).longest == 3
    assert read(Chat, max_tokens=3, max_completion_tokens=5).longest == 5
    assert read(Chat).longest is None


def test_all_answers_to_all_prompts_are_counted_together() -> None:
    assert len(read(Completion, prompt=["a"] * 64).prompts) == 64
    assert len(read(Completion, prompt=["a"] * 4, n=16).prompts) == 4
    too_many: list[dict[str, Any]] = [{"prompt": ["a"] * 65}, {"prompt": []}, {"prompt": ["a"] * 5, "n": 13}]
    for many in too_many:
        with pytest.raises(Failure, match="prompt: at least one, and at most 64 answers") as refused:
            _ = read(Completion, **many).prompts
        assert (refused.value.status, refused.value.param) == (400, "prompt")
    assert len(read(Embeddings, input=["a"] * 2048).inputs) == 2048
    with pytest.raises(Failure, match="input: at least one, and at most 2048"):
        _ = read(Embeddings, input=[]).inputs
    with pytest.raises(Failure, match="dimensions: the model's embeddings have a fixed number of dimensions"):
        _ = read(Embeddings, dimensions=5).inputs

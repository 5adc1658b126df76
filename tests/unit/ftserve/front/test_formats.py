"""Events and vectors as bytes: what every reader takes for one line, and JSON."""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

import numpy as np
import pytest

from ftserve.front import formats
from ftserve.front.formats import Chats, Completions, Envelope, Stream, Usage, Whole

SIGNS = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1e",
    "\ud800",
    "\ufffd",
    "\U0001f600",
    '"',
    "\\",
]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("form", [Completions(), Chats()])
@pytest.mark.parametrize("sign", SIGNS)
def test_an_event_is_one_line_for_everybody(sign: str, form: Completions | Chats, counted: bool) -> None:
    stream = Stream(Envelope(form, f"name{sign}\ufffd"), counted=counted)
    for number in range(3):
        told = stream.piece(number, f"a{sign}b", None, first=False)
        assert told.endswith(b"\n\n")
        line = told.decode("ascii").rstrip("\n").splitlines()
        assert len(line) == 1
        event = json.loads(line[0].removeprefix("data: "))
        (choice,) = event["choices"]
        assert choice["index"] == number
        assert choice.get("text", choice.get("delta", {}).get("content")) == f"a{sign}b"
        assert event["model"] == f"name{sign}\ufffd"
        assert ("usage" in event) == counted


def test_a_quick_event_is_the_same_as_one_made_in_full() -> None:
    for form in (Completions(), Chats()):
        envelope = Envelope(form, "m")
        stream = Stream(envelope, counted=True)
        for text in ("a", "b\n", ""):
            made = form.deltas(1, text, None, first=False)
            whole = b"".join(formats.event(envelope.chunk([each], counted=True)) for each in made)
            assert stream.piece(1, text, None, first=False) == whole or not text


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_are_json_in_parts(encoding: str) -> None:
    vectors = [np.array([1.5, -2.25], np.float32), np.array([0, math.nan], np.float32)]
    parts = list(formats.embeddings('a"b', vectors, 7, encoding))
    said = json.loads(b"".join(parts))
    assert (said["model"], said["usage"]) == ('a"b', {"prompt_tokens": 7, "total_tokens": 7})
    assert [each["index"] for each in said["data"]] == [0, 1]
    if encoding == "float":
        assert said["data"][0]["embedding"] == [1.5, -2.25]
    else:
        first, second = (base64.b64decode(each["embedding"]) for each in said["data"])
        assert np.frombuffer(first, "<f4").tolist() == [1.5, -2.25]
        assert len(second) == 8
    # One vector at a time.
    assert max(map(len, parts)) < 200


ANSWERS = [Whole("yes", 2, "stop"), Whole("n", 1, "length")]


def test_whole_answers_have_openais_form() -> None:
    """platform.openai.com/docs/api-reference: the objects of completions and of chats."""
    head = {"id": "cmpl-7", "object": "text_completion", "created": 5, "model": "m"}
    usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert Envelope(Completions(), "m", "7", 5).whole(ANSWERS, 4) == {
        **head,
        "choices": [
            {"index": 0, "text": "yes", "logprobs": None, "finish_reason": "stop"},
            {"index": 1, "text": "n", "logprobs": None, "finish_reason": "length"},
        ],
        "usage": usage,
    }
    chat = Envelope(Chats(), "m", "7", 5).whole(ANSWERS, 4)
    assert {**chat, "choices": []} == {
        **head, "id": "chatcmpl-7", "object": "chat.completion", "choices": [], "usage": usage,
    }  # fmt: skip
    assert chat["choices"][1] == {
        "index": 1,
        "message": {"role": "assistant", "content": "n", "refusal": None},
        "logprobs": None,
        "finish_reason": "length",
    }


def events(told: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix("data: ")) for event in told.decode().split("\n\n")[:-1]]


def test_a_streamed_completion_has_openais_form() -> None:
    stream = Stream(Envelope(Completions(), "m", "7", 5), counted=False)
    head = {"id": "cmpl-7", "object": "text_completion", "created": 5, "model": "m"}
    choice = {"index": 1, "text": "a", "logprobs": None, "finish_reason": None}
    assert events(stream.piece(1, "a", None, first=True)) == [{**head, "choices": [choice]}]
    assert events(stream.piece(1, "a", None, first=False)) == [{**head, "choices": [choice]}]
    ended = {**choice, "text": "", "finish_reason": "stop"}
    assert events(stream.piece(1, "", "stop", first=False)) == [{**head, "choices": [ended]}]
    assert stream.usage(Usage(4, 3)) == b""
    assert formats.DONE == b"data: [DONE]\n\n"


def test_a_streamed_chat_says_whose_it_is_then_the_text_then_why_it_ends() -> None:
    stream = Stream(Envelope(Chats(), "m", "7", 5), counted=True)
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 5, "model": "m", "usage": None}
    empty = {"index": 2, "logprobs": None, "finish_reason": None}
    begin: dict[str, Any] = {**empty, "delta": {"role": "assistant", "content": ""}}
    text: dict[str, Any] = {**empty, "delta": {"content": "a"}}
    end: dict[str, Any] = {**empty, "delta": {}, "finish_reason": "length"}
    told: list[tuple[bytes, list[dict[str, Any]]]] = [
        (stream.piece(2, "", None, first=True), [begin]),
        (stream.piece(2, "a", None, first=True), [begin, text]),
        (stream.piece(2, "a", None, first=False), [text]),
        (stream.piece(2, "a", "length", first=False), [text, end]),
        (stream.piece(2, "", "length", first=False), [end]),
    ]
    for said, choices in told:
        assert events(said) == [{**head, "choices": [choice]} for choice in choices]
    usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert events(stream.usage(Usage(4, 3))) == [{**head, "choices": [], "usage": usage}]


def test_answers_have_ids_and_times_of_their_own() -> None:
    first, second = Envelope(Chats(), "m"), Envelope(Chats(), "m")
    assert first.id != second.id
    assert abs(first.created - time.time()) < 60
    described = {"id": "m", "object": "model", "created": 5, "owned_by": "ftbuild"}
    assert formats.model("m", 5, None) == described
    assert formats.model("m", 5, 2048) == {**described, "max_model_len": 2048}


def test_vectors_are_a_list_of_openais_objects() -> None:
    vectors = [np.array([1.0], np.float32), np.array([2.0], np.float32)]
    assert json.loads(b"".join(formats.embeddings("m", vectors, 7, "float"))) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0]},
            {"object": "embedding", "index": 1, "embedding": [2.0]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert json.loads(b"".join(formats.embeddings("m", [], 0, "float")))["data"] == []


def test_events_are_as_short_as_json_can_be() -> None:
    assert formats.event({"a": 1, "b": ["ü", None]}) == b'data: {"a":1,"b":["\\u00fc",null]}\n\n'
    assert "usage" not in Envelope(Chats(), "m").chunk([])

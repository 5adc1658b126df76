"""Bodies of requests before their form is looked at: JSON, its size, and what an error says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ftserve.front import bodies, limits
from ftserve.front.failures import Failure
from ftserve.front.requests import Chat, Completion

JSON = "application/json"


def refused(body: bytes, form: type[Any] = Completion) -> Failure:
    with pytest.raises(Failure) as found:
        bodies.read(form, JSON, body)
    assert found.value.status == 400
    return found.value


@pytest.mark.parametrize("body", [b"[]", b'"a"', b"5", b"null", b"true"])
def test_what_is_no_object_is_named_with_what_is_wanted(body: bytes) -> None:
    assert refused(body).message == ("the body must be a JSON object, sent as Content-Type: application/json")


@pytest.mark.parametrize("body", [b"", b"{", b'{"prompt": NaN}', b'{"prompt": -Infinity}', b"{'a': 1}"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    assert refused(body).message == "the body is not valid JSON"


@pytest.mark.parametrize("text", [rb"\ud800", rb"\udc00", rb"\ud800a", b"\xff", rb"\u12"])
def test_what_is_no_text_is_refused(text: bytes) -> None:
    found = refused(b'{"prompt": "' + text + b'"}').message
    assert found == "the body is not valid JSON: not valid Unicode"


def list_of(signs: bytes, number: int) -> bytes:
    """Return JSON with so many of the signs outside of texts; its texts have more of them."""
    texts = b'"' + b'[{,\\"' * 300_000 + b'"'
    if signs == b",":
        return b"[" + texts + b",1" * number + b"]"
    return b"[" + texts + b"," + b",".join([b"{}", b"[]"] * ((number - 1) // 2)) + b"]"


@pytest.mark.parametrize(
    ("signs", "most", "what"),
    [(b",", limits.MAX_VALUES, "values"), (b"[{", limits.MAX_CONTAINERS, "objects and lists")],
)
def test_more_values_or_containers_than_any_request_needs_are_not_parsed(
    signs: bytes, most: int, what: str
) -> None:
    number = most if signs == b"," else most - 1 + most % 2
    assert isinstance(bodies.parsed(list_of(signs, number)), list)
    with pytest.raises(Failure) as found:
        bodies.parsed(list_of(signs, most + 2))
    assert (found.value.status, found.value.code) == (400, "request_too_large")
    assert found.value.message == f"the body has more than {most} {what}"


def test_an_unknown_name_is_repeated_up_to_some_length() -> None:
    found = refused(json.dumps({"prompt": "a", "x" * 500: 1}).encode())
    assert found.param == "x" * 100
    assert found.message == f"unknown argument: {'x' * 100}"
    assert found.code == "unknown_parameter"


def test_an_error_names_its_place_and_not_the_value() -> None:
    """Nor the kinds of alternatives that were tried."""
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}
    found = refused(json.dumps(body).encode(), Chat)
    assert found.message == "messages.0.content.0.text: Input should be a valid string"
    assert (found.param, found.code) == ("messages", None)
    for prompt, place in (([1, "a"], "prompt.1"), ([[1], "a"], "prompt.1"), (["a", 1], "prompt.1")):
        assert refused(json.dumps({"prompt": prompt}).encode()).message.startswith(f"{place}: ")
    long = refused(json.dumps({"prompt": "a", "model": "x" * 5000}).encode())
    assert long.message == "model: String should have at most 4096 characters"

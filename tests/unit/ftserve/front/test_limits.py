"""Limits of what one request makes the service collect: each list, text and number of a form has some."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from ftserve.front import bodies
from ftserve.front.failures import Failure
from ftserve.front.fields import Body
from ftserve.front.requests import (
    Chat,
    Completion,
    Detokenize,
    Embeddings,
    OldCompletion,
    Part,
    Tokenize,
)

FORMS: tuple[type[BaseModel], ...] = (Completion, OldCompletion, Chat, Embeddings, Tokenize, Detokenize)
# Fields without which a body is not looked at any further.
REQUIRED: dict[type[BaseModel], dict[str, Any]] = {
    Completion: {"prompt": "a"},
    OldCompletion: {"prompt": "a"},
    Chat: {"messages": [{"role": "user", "content": "a"}]},
    Embeddings: {"input": "a"},
    Tokenize: {"prompt": "a"},
    Detokenize: {"tokens": [1]},
}


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every part of a schema of pydantic's core."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema
        for value in schema.values():
            yield from schemas(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from schemas(value)


@pytest.mark.parametrize("form", FORMS)
def test_every_field_bounds_what_it_collects(form: type[BaseModel]) -> None:
    found = list(schemas(form.__pydantic_core_schema__))
    kinds = {schema["type"] for schema in found}
    # Whatever these hold would have no limit.
    assert not kinds & {"any", "dict", "set", "tuple", "generator", "json", "frozenset"}
    for schema in found:
        if schema["type"] == "list":
            assert schema.get("fail_fast") is True, schema
            assert schema.get("max_length"), schema
        elif schema["type"] == "str":
            assert schema.get("max_length"), schema
        elif schema["type"] == "int":
            assert {"le", "lt"} & schema.keys(), schema
        elif schema["type"] == "model":
            assert issubclass(schema["cls"], Body) or schema["cls"] is Part, schema


@pytest.mark.parametrize("value", ["\\ud800", "a\\udfffb", "\\ud83d\\u0041"])
@pytest.mark.parametrize("form", FORMS)
def test_half_a_surrogate_pair_is_no_text_anywhere(form: type[BaseModel], value: str) -> None:
    for name in [*form.model_fields, "unknown"]:
        sent = json.dumps({**REQUIRED[form], name: "MARK"}).replace("MARK", value).encode()
        with pytest.raises(Failure, match="not valid Unicode") as refused:
            bodies.read(form, "application/json", sent)
        assert refused.value.status == 400


def test_signs_in_a_text_do_not_count() -> None:
    code = '{[,"\\' * 60_000
    sent = json.dumps({"prompt": code}).encode()
    assert bodies.read(Completion, "application/json", sent).prompts == [code]


@pytest.mark.parametrize("ending", ['"', "", "\\", '\\"'])
def test_a_text_that_does_not_end_is_looked_at_once(ending: str) -> None:
    sent = b'{"prompt":"' + b'\\"{' * 300_000 + ending.encode()
    start = time.process_time()
    with pytest.raises(Failure, match="not valid JSON"):
        bodies.parsed(sent)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "jsonapplication/json"]
)
def test_a_type_that_a_browser_sends_anywhere_is_no_request(kind: str) -> None:
    with pytest.raises(Failure, match="Content-Type: application/json"):
        bodies.read(Completion, kind, b'{"prompt": "a"}')


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/a+json"]
)
def test_the_types_of_json_are_requests(kind: str) -> None:
    assert bodies.read(Completion, kind, b'{"prompt": "a"}').prompts == ["a"]

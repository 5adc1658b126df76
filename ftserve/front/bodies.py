"""Bodies of requests: JSON within limits, then a form of requests.py, or a Failure that names why.

The only reader of what clients send: nothing is parsed, or collected by a validator, beyond limits.py.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from ftserve.front import limits
from ftserve.front.failures import Failure, unknown, unsupported

B = TypeVar("B", bound=BaseModel)
# A text of JSON with its quotes, also one that does not end: no byte is looked at twice.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Types of errors that the forms raise, and the names of alternatives, which are no part of a place.
UNKNOWN, UNSUPPORTED = "unknown_parameter", "unsupported_parameter"
TEXT, TEXTS, IDS, ROWS, PARTS = ":text", ":texts", ":ids", ":rows", ":parts"
_TAGS = frozenset({TEXT, TEXTS, IDS, ROWS, PARTS})
# The longest name of a place in a body that an error repeats.
_LONGEST_PLACE = 100


def read(form: type[B], content_type: str, body: bytes) -> B:
    """Return the body as `form`; Failure (400) for the first thing that is wrong, without its value.

    The type has to be said, since a browser sends JSON of another type to any address without asking.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
        raise Failure(400, "the body must be a JSON object, sent as Content-Type: application/json")
    content = parsed(body)
    if not isinstance(content, dict):
        raise Failure(400, "the body must be a JSON object, sent as Content-Type: application/json")
    try:
        return form.model_validate(content)
    except ValidationError as wrong:
        raise _malformed(wrong) from None


def parsed(body: bytes) -> Any:
    """Return the content of JSON, whose texts are all Unicode; Failure (400) where it is none, or too much.

    Half of a surrogate pair is no text (RFC 8259, 8.2), and a number of more than 4300 digits no number.
    """
    _require_few(body, b"[{", limits.MAX_CONTAINERS, "objects and lists")
    _require_few(body, b",", limits.MAX_VALUES, "values")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as broken:
        problem = str(broken)
        if "code point" in problem or "escape" in problem or "surrogate" in problem:
            raise Failure(400, "the body is not valid JSON: not valid Unicode") from None
        raise Failure(400, "the body is not valid JSON") from None


def _require_few(body: bytes, signs: bytes, limit: int, what: str) -> None:
    """Raise Failure when more than `limit` of the signs are outside of texts."""
    count = sum(body.count(bytes([sign])) for sign in signs)
    if count > limit:
        # Only then: few bodies need the second look.
        bare = _TEXT.sub(b"", body)
        count = sum(bare.count(bytes([sign])) for sign in signs)
    if count > limit:
        raise Failure(400, f"the body has more than {limit} {what}", code="request_too_large")


def _malformed(wrong: ValidationError) -> Failure:
    # Each error repeats what it is about; there is one (limits.py).
    error: ErrorDetails = wrong.errors(include_url=False, include_input=False)[0]
    place = [str(part) for part in error["loc"] if part not in _TAGS]
    context = error.get("ctx", {})
    if "name" in context:
        place.append(str(context["name"]))
    name = ".".join(place)[:_LONGEST_PLACE]
    if error["type"] == UNKNOWN:
        return unknown(name)
    if error["type"] == UNSUPPORTED:
        return unsupported(name, error["msg"])
    return Failure(400, f"{name}: {error['msg']}", param=place[0][:_LONGEST_PLACE] if place else None)

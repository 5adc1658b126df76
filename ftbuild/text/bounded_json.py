"""Untrusted JSON: limited before it is parsed, with one line about what is wrong with it.

A few MB of `{}` become a hundred times as much in Python, and a model that checks them collects an error for
each. So the number of values is limited by the text: no value comes without a comma or a bracket.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ftbuild.text import terminal

# Records and manifests of ours have some thousands.
MAX_VALUES = 200_000
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class TooMuch(ValueError):
    """A text has more values than are read."""


class Unfit(ValueError):
    """A text is not what was expected; the message is one printable line: where in it, and why."""


def loads(content: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse JSON; TooMuch for more than `max_values` values, ValueError for invalid or too deep JSON."""
    _require_few(content, max_values)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def model(kind: type[M], content: bytes, max_values: int = MAX_VALUES) -> M:
    """Return JSON as a model; Unfit for anything else, and for more than `max_values` values."""
    try:
        _require_few(content, max_values)
        return kind.model_validate_json(content)
    except ValidationError as wrong:
        raise Unfit(explained(wrong)) from None
    except TooMuch as large:
        raise Unfit(str(large)) from None


def adapted(kind: TypeAdapter[T], content: bytes, max_values: int = MAX_VALUES) -> T:
    """Return JSON as what an adapter is for; errors as `model`."""
    try:
        _require_few(content, max_values)
        return kind.validate_json(content)
    except ValidationError as wrong:
        raise Unfit(explained(wrong)) from None
    except TooMuch as large:
        raise Unfit(str(large)) from None


def explained(wrong: ValidationError) -> str:
    """Return the first error in one printable line, without the input."""
    first = wrong.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))[:100]
    return terminal.printable(f"{place or 'the whole'}: {first['msg'][:200]}")


def _require_few(content: bytes, max_values: int) -> None:
    if content.count(b",") + content.count(b"[") + content.count(b"{") > max_values:
        raise TooMuch(f"it has more than {max_values} values")

"""Files of prompts: one text per line, or JSON Lines of texts and of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from ftbuild.errors import ConfigError
from ftbuild.host import reading
from ftbuild.text import bounded_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_BYTES = 10**7
MAX_PROMPTS = 100_000
MAX_TOKENS = 100_000
JSON_LINES = ".jsonl"
Ids = Annotated[
    list[Annotated[int, Field(strict=True, ge=0, lt=2**31)]],
    Field(min_length=1, max_length=MAX_TOKENS, fail_fast=True),
]
Text = Annotated[str, Field(strict=True, min_length=1)]


def _form(value: object) -> str | None:
    """Return which of the forms a value is meant to be: only what that one lacks is of interest."""
    forms: dict[type, str] = {str: "text", list: "token ids", dict: "object"}
    return forms.get(type(value))


_Value = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Ids, Tag("token ids")],
    Discriminator(
        _form, custom_error_type="form", custom_error_message="it is neither a text nor a list of token ids"
    ),
]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: _Value


_LINE: TypeAdapter[str | list[int] | _Line] = TypeAdapter(
    Annotated[
        Annotated[Text, Tag("text")] | Annotated[Ids, Tag("token ids")] | Annotated[_Line, Tag("object")],
        Discriminator(
            _form,
            custom_error_type="form",
            custom_error_message="it is neither a text, a list of token ids nor an object",
        ),
    ]
)


@dataclass(frozen=True)
class Prompt:
    """A question: the token ids that servers get, and the text that they were made of, if it is known."""

    tokens: tuple[int, ...]
    text: str | None = None


def read(file: Path, tokenizer: Tokenizer | None) -> list[Prompt]:
    """Return the prompts of a file, blank lines left out; texts need the tokenizer.

    A file whose name ends with .jsonl has a text, a list of token ids, or an object with either as `prompt`
    on each line; any other file a text on each line. ConfigError, with the line, for what is neither, and for
    a file without prompts.
    """
    prompts = []
    for number, line in enumerate(reading.read_text(file, max_bytes=MAX_BYTES).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        value = _parsed(line, where) if file.suffix == JSON_LINES else line.removesuffix("\r")
        prompts.append(_prompt(value, tokenizer, where))
        if len(prompts) > MAX_PROMPTS:
            raise ConfigError(f"more than {MAX_PROMPTS} prompts", where=where)
    if not prompts:
        raise ConfigError("there is no prompt in the file", where=str(file), hint="one a line")
    return prompts


def _parsed(line: str, where: str) -> str | Sequence[int]:
    try:
        value = bounded_json.adapted(_LINE, line.encode(), MAX_TOKENS + 1)
    except bounded_json.Unfit as wrong:
        raise ConfigError(
            f"not a prompt: {wrong}",
            where=where,
            hint='each line is a text ("..."), token ids ([1, 2]), or {"prompt": ...} with either',
        ) from wrong
    return value.prompt if isinstance(value, _Line) else value


def _prompt(value: str | Sequence[int], tokenizer: Tokenizer | None, where: str) -> Prompt:
    if not isinstance(value, str):
        return Prompt(tuple(value), None if tokenizer is None else tokenizer.decode(list(value)))
    if tokenizer is None:
        raise ConfigError(
            "a text needs the model's tokenizer", where=where, hint="--tokenizer DIR, or prompts of token ids"
        )
    if ids := tokenizer.encode(value).ids:
        return Prompt(tuple(ids), value)
    raise ConfigError("the tokenizer turns this text into no token", where=where)

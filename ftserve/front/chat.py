"""Chat templates of checkpoints, as transformers renders them.

A template comes with the checkpoint, from strangers: Jinja's sandbox lets it make text and nothing else. But
it bounds neither time nor memory, not even while a template is compiled, which computes its constants. So
templates are compiled and rendered in processes that can be ended (workers.py), and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ftserve.front import declared
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_DEFAULT = "default"


# What a template that cannot be compiled or rendered may end with: Python compiles what Jinja makes of it,
# and refuses for instance a `break` outside of a loop, or too many nested blocks.
_WRONG = (
    jinja2.TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
    RecursionError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


class _Generation(Extension):
    """`{% generation %}`, by which templates mark for training what an assistant said: its body, as it is."""

    tags = {"generation"}  # noqa: RUF012 (as in the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatTemplate:
    """The template of a checkpoint, with the texts of its special tokens."""

    def __init__(self, source: str, tokens: Mapping[str, Any]) -> None:
        """Compile `source`; ConfigError when it is no template."""
        extensions: list[str | type[Extension]] = [loopcontrols, _Generation]
        # transformers v4.57 utils/chat_template_utils.py, _compile_jinja_template.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=extensions
        )
        environment.filters["tojson"] = _json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            self._template = environment.from_string(source)
        except _WRONG as broken:
            problem = str(broken)[:200] if isinstance(broken, jinja2.TemplateError | SyntaxError) else ""
            raise ConfigError(
                f"the chat template is broken: {problem or type(broken).__name__}",
                hint="a template of another model, or none: remove it from the tokenizer's folder",
            ) from None
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt for the next message of the assistant; Failure when the template refuses."""
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, tools=None, documents=None, **self._tokens
            )
        except _WRONG as refused:
            # Only the template's own words: others may quote a message.
            problem = str(refused) if isinstance(refused, _Refused) else type(refused).__name__
            raise Failure(
                400, f"the model's chat template does not take these messages: {problem}", param="messages"
            ) from None


class _Refused(jinja2.TemplateError):
    """A template called `raise_exception`."""


def read(folder: Path) -> ChatTemplate | None:
    """Return the template beside a tokenizer, None where there is none; ConfigError for a malformed file."""
    config, declaration = _config(folder / CONFIG), _declared(folder)
    tokens: dict[str, Any] = {name: token.content for name, token in declaration.special.items()}
    if declaration.more:
        tokens[declared.MORE] = [token.content for token in declaration.more]
    own = folder / TEMPLATE
    source: Any = _text(own) if own.is_file() else config.get("chat_template")
    if isinstance(source, list):
        # Several, by name.
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get(_DEFAULT)
    return ChatTemplate(source, tokens) if isinstance(source, str) else None


def special_tokens(folder: Path) -> dict[str, str]:
    """Return the texts of special tokens by their roles, as transformers knows them: by files, or the class.

    Raises ConfigError for files that are none of a tokenizer.
    """
    return {name: token.content for name, token in _declared(folder).special.items()}


def end_token(folder: Path) -> str | None:
    """Return the text of the token that ends an answer, if the tokenizer's files name one."""
    return special_tokens(folder).get("eos_token")


def _declared(folder: Path) -> declared.Declared:
    _config(folder / CONFIG)
    try:
        return declared.read(folder)
    except (ValueError, OSError, RecursionError) as broken:
        raise ConfigError(
            f"the tokenizer's files contradict themselves: {broken}", where=str(folder)
        ) from broken


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as broken:
        raise ConfigError(f"{file.name} cannot be read: {type(broken).__name__}", where=str(file)) from broken


def _config(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (ValueError, OSError, RecursionError) as broken:
        raise ConfigError(f"{CONFIG} cannot be read: {type(broken).__name__}", where=str(file)) from broken
    if not isinstance(content, dict):
        raise ConfigError(f"{CONFIG} is not a JSON object", where=str(file))
    return content


def _json(value: Any, indent: int | None = None) -> str:
    """Return JSON as it is: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: object) -> None:
    raise _Refused(str(message)[:300])


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)

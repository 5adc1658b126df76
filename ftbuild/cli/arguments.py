"""Command-line arguments made from type annotations.

A command is a typed function. Its parameters are options, or dataclasses whose fields are options; the text
of `Annotated[type, "help"]` is the help. Understood types: bool, int, float, str, Path, each also `| None`;
`Literal` for a choice; `tuple[str, ...]` or `Sequence[str]` for an option that may be repeated.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from invoke.exceptions import Exit
from invoke.parser.argument import Argument

from ftbuild.errors import ConfigError
from ftbuild.text import terminal

# How a value is called in messages, and in `--help` by Invoke itself.
_NOUNS: Mapping[type, str] = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Range:
    """Limits of a number, both inclusive; None: no limit."""

    low: float | None = None
    high: float | None = None

    def complaint(self, value: float) -> str | None:
        """Return what is wrong with a value, or None. NaN is in no range."""
        if (self.low is None or value >= self.low) and (self.high is None or value <= self.high):
            return None if value == value else "must be a number"
        if self.high is None:
            return f"must be at least {_digits(self.low)}"
        if self.low is None:
            return f"must be at most {_digits(self.high)}"
        return f"must be between {_digits(self.low)} and {_digits(self.high)}"


def _digits(limit: float | None) -> str:
    """Return a limit as it is typed, a whole number with all of its digits; nothing for none."""
    if limit is None:
        return ""
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


@dataclass(frozen=True)
class Option:
    """One option of a command: its name in Python, its type, its help and its default."""

    name: str
    kind: type
    help: str
    default: Any
    required: bool = False
    repeatable: bool = False
    choices: tuple[str, ...] = ()
    limits: Range = Range()

    def __deepcopy__(self, memo: object) -> Option:
        """Return itself: Invoke copies every command several times before it runs one."""
        return self

    @property
    def flag(self) -> str:
        """The option as typed, for instance `--dry-run`; a word of Python has a `_` more in its name."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    def is_given(self, values: Mapping[str, Any]) -> bool:
        """Return whether one of the parsed values is this option's, and not its default."""
        value = values.get(self.name, self.default)
        return bool(value) if self.repeatable else value != self.default

    def parse(self, text: str) -> Any:
        """Return the value of a text; ConfigError when it does not fit the type."""
        if not text:
            hint = None if self.required else f"leave {self.flag} out for its default"
            raise ConfigError(f"{self.flag} needs a value", hint=hint)
        if self.choices and text not in self.choices:
            raise ConfigError(
                f"{self.flag}: {terminal.quoted(text)} is unknown", hint=f"one of {', '.join(self.choices)}"
            )
        try:
            value = self._value(text)
        except ValueError:
            raise ConfigError(
                f"{self.flag} must be {_NOUNS[self.kind]}, not {terminal.quoted(text)}"
            ) from None
        if isinstance(value, int | float) and (complaint := self.limits.complaint(value)):
            raise ConfigError(f"{self.flag} {complaint}, not {text[: terminal.LONGEST]}")
        return value

    def _value(self, text: str) -> Any:
        """Return the value of a text; ValueError when it is none. A number has no `_` and digits of ASCII."""
        if self.kind in _NOUNS and not (text.isascii() and "_" not in text):
            raise ValueError
        return self.kind(text)

    def argument(self) -> Argument:
        """Return the argument for Invoke's parser."""
        return _Argument(self)


class _Argument(Argument):
    """An argument that parses by its `Option`; Invoke's own ends with a traceback for a text as a number."""

    def __init__(self, option: Option) -> None:
        # Path is a text to Invoke, so that --help says STRING.
        kind = list if option.repeatable else str if option.kind in (Path, float) else option.kind
        super().__init__(
            names=(option.flag.removeprefix("--"),),
            kind=kind,
            default=[] if option.repeatable else option.default,
            help=option.help,
            positional=option.required,
            attr_name=option.name if "_" in option.name else None,
        )
        self.option = option
        # Invoke takes the empty list for a value that was given: `--sm` alone would select everything.
        self.raw_value = None

    def __deepcopy__(self, memo: object) -> _Argument:
        """Return a copy with a value of its own; no value is changed in place."""
        return copy.copy(self)

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Parse and keep the value of an option; end with 2 when it is wrong."""
        if self.kind is bool or not isinstance(value, str):
            super().set_value(value, cast)
            return
        try:
            parsed = self.option.parse(value)
        except ConfigError as wrong:
            raise Exit(f"error: {wrong}", code=wrong.exit_code) from wrong
        self.raw_value = value
        self._value = [*(self._value or []), parsed] if self.kind is list else parsed


@dataclass(frozen=True)
class Signature:
    """The options of a command, and how its parameters are made of their values."""

    options: tuple[Option, ...]
    groups: Mapping[str, tuple[type, tuple[str, ...]]]

    def __deepcopy__(self, memo: object) -> Signature:
        """Return itself, as an option does."""
        return self

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the function for the parsed values of its options."""
        left = {option.name: self._value(option, values) for option in self.options}
        made: dict[str, Any] = {}
        for parameter, (kind, names) in self.groups.items():
            made[parameter] = kind(**{name: left.pop(name) for name in names})
        return {**made, **left}

    @staticmethod
    def _value(option: Option, values: Mapping[str, Any]) -> Any:
        value = values.get(option.name, option.default)
        return tuple(value or ()) if option.repeatable else value


def signature(function: Callable[..., int | None]) -> Signature:
    """Read the options of a command off its function; TypeError for a type that is not understood."""
    hints = get_type_hints(function, include_extras=True)
    options: list[Option] = []
    groups: dict[str, tuple[type, tuple[str, ...]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            members = _fields(hint)
            groups[parameter.name] = hint, tuple(option.name for option in members)
            options.extend(members)
        else:
            options.append(_option(parameter.name, hint, parameter.default))
    return Signature(tuple(options), groups)


@cache  # Many commands share their groups of options.
def _fields(kind: type) -> tuple[Option, ...]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        found.append(
            _option(field.name, hints[field.name], inspect.Parameter.empty if default is MISSING else default)
        )
    return tuple(found)


def _option(name: str, hint: Any, default: Any) -> Option:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"option {name} has no help text: Annotated[type, 'help']")
    kind, *notes = get_args(hint)
    help_text = next(note for note in notes if isinstance(note, str))
    limits = next((note for note in notes if isinstance(note, Range)), Range())
    required = default is inspect.Parameter.empty
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    repeatable = get_origin(kind) in (tuple, Sequence)
    choices = tuple(get_args(kind)) if get_origin(kind) is Literal else ()
    kind = str if repeatable or choices else kind
    if kind not in (bool, int, float, str, Path):
        raise TypeError(f"option {name}: {kind} is not understood")
    return Option(name, kind, help_text, None if required else default, required, repeatable, choices, limits)

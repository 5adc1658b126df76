"""Values of options that reach workflow files: refused unless they mean there what was typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ftbuild.errors import ConfigError

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# POSIX cron, with names as GitHub takes them (docs.github.com, Events that trigger workflows, schedule).
_FIELDS: tuple[tuple[str, range, Mapping[str, int]], ...] = (
    ("minute", range(60), {}),
    ("hour", range(24), {}),
    ("day of the month", range(1, 32), {}),
    ("month", range(1, 13), {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", range(7), {name: number for number, name in enumerate(_DAYS)}),
)
_ITEM = re.compile(r"(?:\*|([0-9A-Z]{1,3})(?:-([0-9A-Z]{1,3}))?)(?:/([0-9]{1,2}))?")


def plain(option: str, text: str) -> str:
    """Return `text`; ConfigError where a CI system would replace a part of it, or a line would end in it."""
    if not text.isprintable() or "$" in text:
        raise ConfigError(
            f"{option}: {text!r} cannot be written into a workflow file",
            hint="use printable characters other than '$', in which CI systems see their variables",
        )
    return text


def labels(option: str, text: str | None) -> tuple[str, ...]:
    """Return the labels of runners in a list with commas; none for None."""
    if text is None:
        return ()
    names = tuple(label.strip() for label in plain(option, text).split(","))
    if not all(names):
        raise ConfigError(f"{option}: {text!r} has an empty label", hint="labels with one comma between them")
    return names


def cron(option: str, text: str) -> str:
    """Return a schedule in five fields; ConfigError where a CI system would never start it."""
    fields = text.split(" ")
    if len(fields) != len(_FIELDS):
        raise ConfigError(
            f"{option}: {text!r} is not a schedule",
            hint="minute, hour, day of the month, month, day of the week, one blank between: '17 1 * * *'",
        )
    for field, (name, numbers, names) in zip(fields, _FIELDS, strict=True):
        if not all(_is_item(item, numbers, names) for item in field.split(",")):
            raise ConfigError(
                f"{option}: {field!r} is no {name}",
                hint=f"'*' or numbers from {numbers[0]} to {numbers[-1]}, as '1,3', '1-5' or '*/2'",
            )
    return text


def words(selection: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a selection: each option followed by its value."""
    option_words = tuple(selection)
    for option, value in zip(option_words[::2], option_words[1::2], strict=True):
        plain(option, value)
    return option_words


def _is_item(text: str, numbers: range, names: Mapping[str, int]) -> bool:
    match = _ITEM.fullmatch(text)
    if match is None or (match[3] and not 0 < int(match[3]) <= numbers[-1]):
        return False
    ends = [_number(end, names) for end in match.group(1, 2) if end]
    return all(end in numbers for end in ends) and ends == sorted(ends)


def _number(text: str, names: Mapping[str, int]) -> int:
    return int(text) if text.isdigit() else names.get(text, -1)

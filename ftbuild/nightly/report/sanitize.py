"""Output of compilers, registries and terminals as plain text, safe for XML, Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from ftbuild.nightly.record import NightlyRun
from ftbuild.text import terminal

# XML 1.0 section 2.2 allows no other characters; C1 controls and direction overrides are removed as well.
_UNWANTED = re.compile(
    "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    """Return `text` without terminal codes and characters that XML forbids; every line ends with `\\n`."""
    return _UNWANTED.sub("", terminal.clean(text))


def cleaned(run: NightlyRun) -> NightlyRun:
    """Return the run with every text in it clean. All reports begin with this."""
    result: NightlyRun = _cleaned(run)
    return result


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line that is not blank, at most `limit` characters long."""
    return clip(next((line.strip() for line in text.splitlines() if line.strip()), ""), limit)


def clip(text: str, limit: int) -> str:
    """Return `text`, or its first `limit` characters and the number of those cut."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} characters more)"


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Enum) else clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_cleaned(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _cleaned(getattr(value, f.name)) for f in fields(value)})
    return value

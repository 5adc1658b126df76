"""Text of unknown origin in Markdown."""

from __future__ import annotations

import html
import re

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#!|~@])")


def escaped(text: str) -> str:
    """Return `text` escaped and on one line, also for a table."""
    return _PUNCTUATION.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """Return `text` as code; a span of backticks could hold neither a pipe in a table nor backticks."""
    return f"<code>{escaped(text)}</code>"

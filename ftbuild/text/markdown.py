"""Markdown: text of unknown origin, and tables."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#!|~@])")


def escaped(text: str) -> str:
    """Return `text` escaped and on one line, also for a table."""
    return _PUNCTUATION.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def row(cells: Iterable[str]) -> str:
    """Return a row of a table, of cells that are escaped already."""
    return f"| {' | '.join(cells)} |"


def table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells that are escaped already."""
    return "\n".join(map(row, (titles, ["---"] * len(titles), *rows)))


def code(text: str) -> str:
    """Return `text` as code; a span of backticks could hold neither a pipe in a table nor backticks."""
    return f"<code>{escaped(text)}</code>"

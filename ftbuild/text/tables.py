"""Tables as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from ftbuild.text import screen

# Between columns, as tabulate puts them.
_GAP = 2
# A column is not narrowed further: a word a line is no easier to read than a line that the terminal wraps.
_NARROWEST = 16


def render(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, header: bool = True, width: int | None = None
) -> str:
    """Render a table as wide as its content, so that a pipe or a CI log never wraps it.

    On a terminal, or with a `width` in characters, the widest columns are wrapped between words until it
    fits. A word that is longer than its column is broken after a slash, as paths and URLs are, or not at all.
    """
    from tabulate import tabulate

    width = width or screen.columns()
    if width:
        # tabulate gives a title two characters more than it has.
        rows = _fitted([[f"{title}  " for title in titles], *rows] if header else rows, rows, width)
    shown = {"headers": titles, "tablefmt": "simple"} if header else {"tablefmt": "plain"}
    lines = [line.rstrip() for line in tabulate(rows, disable_numparse=True, **shown).splitlines()]
    if header and width:
        # A word that does not fit makes its column too wide, not the rule below the titles.
        lines[1] = lines[1][:width]
    return "\n".join(lines)


def _fitted(all_rows: Sequence[Sequence[str]], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the rows with their cells wrapped; `all_rows` has the titles too, which take room."""
    widths = [
        max((len(line) for cell in column for line in cell.splitlines()), default=0)
        for column in zip(*all_rows, strict=True)
    ]
    room = width - _GAP * (len(widths) - 1)
    limits = list(widths)
    while sum(limits) > room and max(limits) > _NARROWEST:
        widest = limits.index(max(limits))
        limits[widest] -= 1
    return [[_wrapped(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in rows]


def _wrapped(cell: str, width: int) -> str:
    lines = (
        textwrap.wrap(_breakable(line, width), width, break_long_words=False, break_on_hyphens=False)
        or [line]
        for line in cell.splitlines()
    )
    return "\n".join(part for lines_of_one in lines for part in lines_of_one)


def _breakable(line: str, width: int) -> str:
    """Return a line with spaces where a word that is too long may be broken."""
    return " ".join(_parts(word, width) if len(word) > width else word for word in line.split(" "))


def _parts(word: str, width: int) -> str:
    parts = [""]
    for part in re.findall(r"[^/]*/*", word):
        if parts[-1] and len(parts[-1]) + len(part) > width:
            parts.append("")
        parts[-1] += part
    return " ".join(parts)

"""Texts on a terminal: as wide as it is, with states in colours. A pipe and a file get neither."""

from __future__ import annotations

import os
import re
import shutil
import sys

from ftbuild.text import terminal

_RED, _GREEN, _YELLOW, _FAINT = "1;31", "32", "33", "2"
# The words of all gates, reports and commands that say how something ended.
_COLOURS = {
    **dict.fromkeys(("fail", "failed", "error"), _RED),
    **dict.fromkeys(("warn", "untested", "unsmoked", "not run"), _YELLOW),
    **dict.fromkeys(("ok", "passed", "built", "published", "promoted", "signed"), _GREEN),
    **dict.fromkeys(("skip", "skipped", "excluded", "present", "already published"), _FAINT),
}
# A state is all that a column of a table has in a line: columns are two spaces apart.
_STATE = re.compile(rf"(?m)(?:^|(?<=  ))({'|'.join(map(re.escape, _COLOURS))})(?=  |$)")


def columns() -> int | None:
    """Return the width of the terminal that standard output is, None for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def has_colours() -> bool:
    """Return whether standard output is a terminal with colours, and colours are wanted (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdout.isatty() and not plain


def coloured(text: str) -> str:
    """Return a text without control codes but for the colours of the states in its tables."""
    return _STATE.sub(lambda match: f"\x1b[{_COLOURS[match[1]]}m{match[1]}\x1b[0m", terminal.safe(text))


def show(text: str) -> None:
    """Print a text with tables, in colours where the terminal has them."""
    # Commands' own stream takes out control codes, those of others included.
    draw = getattr(sys.stdout, "draw", sys.stdout.write)
    if has_colours():
        draw(f"{coloured(text)}\n")
    else:
        print(text)

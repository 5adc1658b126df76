"""Text without the control codes of terminals, and values of others in short."""

from __future__ import annotations

import re
import reprlib

# ECMA-48: control sequences, then strings (OSC, DCS, SOS, PM, APC) to their end, then two-character escapes.
_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]" r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?" r"|\x1b[ -/]*[0-~]"
)

# C0 and C1 but for tabs and line ends; bidirectional controls (UAX 9).
_ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# No path is longer on Linux (limits.h, PATH_MAX), so that what is cut is none.
_LONG_WORD, _KEPT = re.compile(r"\S{4097,}"), 100

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST = 80


def clean(text: str) -> str:
    """Return `text` without terminal codes; every line end is `\\n`."""
    return _CODES.sub("", re.sub("\r\n?", "\n", text))


def safe(text: str) -> str:
    """Return `text` with its lines, tabs and words, and nothing that a terminal acts on.

    What is left of a code, for example of one that comes in two parts, is escaped (`\\x1b`), and so is what
    turns the direction of text round.
    """
    return _ACTS.sub(lambda match: match[0].encode("unicode_escape").decode(), clean(text))


def printable(text: str) -> str:
    """Return `text` on one line, without terminal codes; what else is not printable is escaped (`\\x00`)."""
    line = " ".join(clean(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def readable(text: str) -> str:
    """Return `text` with words that are longer than any path cut in their middle, and their lengths."""
    return _LONG_WORD.sub(
        lambda match: f"{match[0][:_KEPT]}...{match[0][-_KEPT:]} ({len(match[0])} characters)", text
    )


def quoted(value: object) -> str:
    """Return a value for a message: short (a text has LONGEST characters), without control characters."""
    return _SHORT.repr(value)

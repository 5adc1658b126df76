"""Text without the control codes of terminals, and values of others in short."""

from __future__ import annotations

import re
import reprlib

# ECMA-48: control sequences, then strings (OSC, DCS, SOS, PM, APC) to their end, then two-character escapes.
_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]" r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?" r"|\x1b[ -/]*[0-~]"
)

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST = 80


def clean(text: str) -> str:
    """Return `text` without terminal codes; every line end is `\\n`."""
    return _CODES.sub("", re.sub("\r\n?", "\n", text))


def printable(text: str) -> str:
    """Return `text` on one line, without terminal codes; what else is not printable is escaped (`\\x00`)."""
    line = " ".join(clean(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def quoted(value: object) -> str:
    """Return a value for a message: short (a text has LONGEST characters), without control characters."""
    return _SHORT.repr(value)

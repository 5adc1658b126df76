"""Text without the control codes of terminals."""

from __future__ import annotations

import re

# ECMA-48: control sequences, then strings (OSC, DCS, SOS, PM, APC) to their end, then two-character escapes.
_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]" r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?" r"|\x1b[ -/]*[0-~]"
)


def clean(text: str) -> str:
    """Return `text` without terminal codes; every line end is `\\n`."""
    return _CODES.sub("", re.sub("\r\n?", "\n", text))


def printable(text: str) -> str:
    """Return `text` on one line, without terminal codes; what else is not printable is escaped (`\\x00`)."""
    line = " ".join(clean(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)

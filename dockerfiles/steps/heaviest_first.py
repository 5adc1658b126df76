#!/usr/bin/env -S python3 -I -S
"""Move the compiles of the named sources to the front of a Ninja file, in the order of the names.

Usage: heaviest_first.py BUILD.NINJA NAME...

A NAME is a file name without its suffixes. Of the edges that are ready, Ninja starts the first in the file
(since 1.12: the first of those with the longest critical path).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_COMPILE = re.compile(r"^build (?:\S*/)?([^/\s.]+)[^/\s]*\.o:.*\n(?:[ \t]+.*\n)*", re.M)


def reorder(text: str, names: list[str]) -> str:
    """Return the Ninja file `text` with the compiles of `names` before all other edges."""
    ranks = {name: rank for rank, name in enumerate(names)}
    heavy = sorted((ranks[found[1]], found[0]) for found in _COMPILE.finditer(text) if found[1] in ranks)
    for _, edge in heavy:
        text = text.replace(edge, "", 1)
    first = re.search("^build ", text, re.M)
    at = first.start() if first else len(text)
    return "".join([text[:at], *(edge for _, edge in heavy), text[at:]])


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(reorder(file.read_text(), sys.argv[2:]))

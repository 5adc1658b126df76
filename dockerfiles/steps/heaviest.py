#!/usr/bin/env -S python3 -I -S
"""Move the compiles of the named sources in a Ninja file, in the order of the names.

Usage: heaviest.py first|last BUILD.NINJA NAME...

A NAME is a file name without its suffixes. `first`: they come before all others. `last`: after all others and
in reverse, so that a tree meets another one that began with them and finds the rest in ccache; those of the
PyTorch library itself (th_op), which no other tree has, come first all the same. Of the edges that are ready,
Ninja starts the first in the file (since 1.12: the first of those with the longest critical path).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_COMPILE = re.compile(r"^build (?:\S*/)?([^/\s.]+)[^/\s]*\.o:.*\n(?:[ \t]+.*\n)*", re.M)
_OWN = "/th_op/"


def reorder(text: str, names: list[str], *, last: bool = False) -> str:
    """Return the Ninja file `text` with the compiles of `names` before all other edges, or `last`."""
    ranks = {name: rank for rank, name in enumerate(names)}
    heavy = sorted((ranks[found[1]], found[0]) for found in _COMPILE.finditer(text) if found[1] in ranks)
    for _, edge in heavy:
        text = text.replace(edge, "", 1)
    begin = [edge for _, edge in heavy if not last or _OWN in edge]
    end = [edge for _, edge in reversed(heavy) if last and _OWN not in edge]
    first = re.search("^build ", text, re.M)
    at = first.start() if first else len(text)
    return "".join([text[:at], *begin, text[at:], *end])


if __name__ == "__main__":
    where, file = sys.argv[1], Path(sys.argv[2])
    file.write_text(reorder(file.read_text(), sys.argv[3:], last=where == "last"))

"""Debian's order of versions (Debian Policy 5.6.12, deb-version(7)), without a process for each."""

from __future__ import annotations

import re
from functools import cmp_to_key, lru_cache
from itertools import zip_longest
from typing import Any

# No package has a version of more than some 60 characters.
LONGEST = 255
_VERSION = re.compile(r"(?:(\d{1,9}):)?([A-Za-z0-9.+~:-]+)", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9.+~]+", re.ASCII)
_PARTS = re.compile(r"(\D*)(\d*)", re.ASCII)
Part = tuple[tuple[int, ...], int]
_END: Part = ((0,), 0)


class Version:
    """A version, to be compared and sorted; ValueError for what is none."""

    def __init__(self, text: str) -> None:
        found = _VERSION.fullmatch(text) if len(text) <= LONGEST else None
        upstream, dash, revision = found[2].rpartition("-") if found else ("", "", "")
        if not dash:
            upstream, revision = revision, ""
        wrong = (dash and not _REVISION.fullmatch(revision)) or (found and ":" in upstream and not found[1])
        if not found or not upstream or wrong:
            raise ValueError(f"not a version of Debian: {text[:80]!a}")
        self._epoch = int(found[1] or 0)
        self._parts = (_parts(upstream), _parts(revision))

    def compare(self, other: Version) -> int:
        """Return -1, 0 or 1."""
        if self._epoch != other._epoch:
            return -1 if self._epoch < other._epoch else 1
        for own, others in zip(self._parts, other._parts, strict=True):
            # `1~` is before `1`, and `1a` after it: where one of both ends, the other goes on.
            for one, another in zip_longest(own, others, fillvalue=_END):
                if one != another:
                    return -1 if one < another else 1
        return 0


@lru_cache(maxsize=50_000)
def key(text: str) -> Any:
    """Return what a version is sorted by; ValueError for what is none."""
    return _KEY(Version(text))


_KEY = cmp_to_key(Version.compare)


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1; ValueError for what is no version."""
    return Version(one).compare(Version(other))


def _parts(text: str) -> tuple[Part, ...]:
    """Return words and numbers by turns."""
    return tuple((_word(word), int(number or 0)) for word, number in _PARTS.findall(text) if word or number)


def _word(word: str) -> tuple[int, ...]:
    """Return a word by the order of its characters: `~`, the end, letters, all others."""
    return (*(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in word), 0)

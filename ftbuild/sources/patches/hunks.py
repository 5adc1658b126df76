"""Hunks of a diff, to name the one that conflicts: git gives file and line of the old version only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")
_FAILED = re.compile(r"error: patch failed: (.+):(\d+)")
_UNUSABLE = re.compile(r"error: (?!patch failed|while searching)(.+?): (.+)")


@dataclass(frozen=True)
class Hunk:
    """One hunk: the file it changes, its place in that file's hunks (from 1) and its `@@` line."""

    file: str
    number: int
    start: int
    header: str


@dataclass(frozen=True)
class Conflict:
    """The reason why a diff does not apply to a file; no hunk when the whole file does not fit."""

    file: str
    reason: str
    hunk: Hunk | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def parse_hunks(diff: str) -> Iterator[Hunk]:
    """Yield every hunk of a unified diff, in order."""
    file, number, remaining = "", 0, 0
    for line in diff.splitlines():
        if remaining > 0:
            remaining -= 2 if line[:1] in ("", " ") else 1 if line[:1] in ("-", "+") else 0
        elif match := _HUNK.fullmatch(line):
            number += 1
            remaining = int(match[2] or 1) + int(match[4] or 1)
            yield Hunk(file, number, int(match[1]), line)
        elif line.startswith(("--- ", "+++ ")):
            name = line[4:].split("\t")[0]
            file, number = (name.split("/", 1)[-1] if name != "/dev/null" else file), 0


def conflicts(diff: str, complaint: str) -> tuple[Conflict, ...]:
    """Parse the complaints of `git apply`, with hunk number and header where one hunk is the cause."""
    by_start = {(hunk.file, hunk.start): hunk for hunk in parse_hunks(diff)}
    found: dict[str, Conflict] = {}
    for line in complaint.splitlines():
        if match := _FAILED.fullmatch(line):
            hunk = by_start.get((match[1], int(match[2])))
            place = f"hunk {hunk.number}, {hunk.header}" if hunk else f"line {match[2]}"
            found[match[1]] = Conflict(match[1], f"{place} does not match", hunk)
        elif match := _UNUSABLE.fullmatch(line):
            found.setdefault(match[1], Conflict(match[1], match[2]))
    return tuple(found.values()) or (Conflict("the patch", complaint.strip() or "git refuses it"),)

"""Hunks of a diff, to name the one that conflicts: git gives file and line of the old version only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*", re.ASCII)
# Extended header lines of a change without a hunk (git-diff(1), "Generating patch text with -p").
_WITHOUT_HUNK = re.compile(
    r"^(?:rename from|copy from|new file mode|deleted file mode|old mode|GIT binary patch)\b", re.M
)
_FAILED = re.compile(r"error: patch failed: (.+):(\d{1,9})")
_UNUSABLE = re.compile(r"error: (?!patch failed|while searching)(.+?): (.+)")


@dataclass(frozen=True)
class Hunk:
    """One hunk: the file it changes, its place in that file's hunks (from 1) and its `@@` line."""

    file: str
    number: int
    start: int
    header: str


@dataclass(frozen=True)
class Flaw:
    """What git would call a corrupt patch, and the line of the diff (from 1)."""

    line: int
    what: str


@dataclass(frozen=True)
class Conflict:
    """The reason why a diff does not apply to a file; no hunk when the whole file does not fit."""

    file: str
    reason: str
    hunk: Hunk | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def changes_anything(diff: str) -> bool:
    """Return whether a diff has a hunk, or moves, makes, removes, or changes the mode of a file."""
    return next(parse_hunks(diff), None) is not None or _WITHOUT_HUNK.search(diff) is not None


def flaw(diff: str) -> Flaw | None:
    """Return the first hunk whose lines are not as many as its `@@` line says, or a cut last line, if any."""
    old = new = start = 0
    header = ""
    for number, line in enumerate(diff.removesuffix("\n").split("\n"), start=1):
        kind = line.rstrip("\r")[:1]
        if old > 0 or new > 0:
            if kind not in ("", " ", "-", "+", "\\"):
                break
            old -= kind in ("", " ", "-")
            new -= kind in ("", " ", "+")
            if old < 0 or new < 0:
                break
        elif match := _HUNK.fullmatch(line.rstrip("\r")):
            header, start = line.rstrip("\r"), number
            old, new = int(match[2] or 1), int(match[4] or 1)
        elif line.startswith("@@"):
            return Flaw(number, f"not the header of a hunk: {line[:80]!r}")
        elif kind in ("+", "-", " ") and start and not line.startswith(("--- ", "+++ ", "-- ")):
            return Flaw(number, f"the hunk {header[:80]} has more lines than it says")
    if old or new:
        return Flaw(start, f"the hunk {header[:80]} has not as many lines as it says")
    return _cut(diff)


def _cut(diff: str) -> Flaw | None:
    """Return a last line without a line end, as editors leave it: git calls that corrupt.

    It does not in `\\ No newline at end of file`, nor in the signature of git format-patch.
    """
    *lines, last = diff.split("\n")
    if not last or last.startswith("\\") or any(line.rstrip("\r") == "-- " for line in [*lines[-3:], last]):
        return None
    return Flaw(len(lines) + 1, "the last line has no line end")


def parse_hunks(diff: str) -> Iterator[Hunk]:
    """Yield every hunk of a unified diff, in order."""
    file, number, remaining = "", 0, 0
    for line in (each.removesuffix("\r") for each in diff.split("\n")):
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

"""Journals: what has been tried of an area, mutant by mutant, so that a campaign can go on another time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """A file with a line for each mutant that was tried; its first line is the `key` of sources and tests."""

    file: Path
    key: str

    def outcomes(self) -> dict[int, bool]:
        """Return whether the mutants survive that were tried, by number; none if the key is another one."""
        found: dict[int, bool] = {}
        if not self.file.exists():
            return found
        key, *lines = self.file.read_text().splitlines() or [""]
        if key != self.key:
            return found
        for line in lines:
            with suppress(ValueError):  # one that was being written when the campaign was killed
                number, survives = json.loads(line)
                found[number] = survives
        return found

    def begin(self) -> None:
        """Begin anew: what it held is forgotten."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(f"{self.key}\n")

    def note(self, number: int, *, survives: bool) -> bool:
        """Append a mutant, also from one of several processes, and return whether it survives."""
        with self.file.open("a") as file:
            file.write(f"\n{json.dumps([number, survives])}")
        return survives


def key(root: Path, files: Sequence[Path]) -> str:
    """Return what changes with the name or the content of any of the files below `root`."""
    sums = [(str(file.relative_to(root)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()

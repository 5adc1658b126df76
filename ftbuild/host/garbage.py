"""Garbage: its size, and its removal unless it is in use."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ftbuild.text import tables, units


@dataclass(frozen=True)
class Garbage:
    """Something that can be removed; `remove` returns why it was left alone, or None."""

    kind: str
    name: str
    size: int
    remove: Callable[[], str | None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Removal:
    """Outcome for one item: `state` is "removed", "to remove", or the reason why it was left alone."""

    kind: str
    name: str
    size: int
    state: str


REMOVED, TO_REMOVE = "removed", "to remove"


def removal(item: Garbage, *, dry_run: bool) -> Removal:
    """Remove something, unless it is a dry run. What the system refuses to remove is left alone."""
    try:
        state = TO_REMOVE if dry_run else item.remove() or REMOVED
    except OSError as refused:
        state = str(refused.strerror or refused)
    return Removal(item.kind, item.name, item.size, state)


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; another command may remove it meanwhile."""
    if not path.is_dir() or path.is_symlink():
        return _bytes(path)
    return sum(_bytes(Path(parent, name)) for parent, _, names in os.walk(path) for name in names)


def _bytes(file: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return file.lstat().st_size
    return 0


def table(removals: Sequence[Removal]) -> str:
    """Return what was removed, and the sum of it."""
    rows = [(r.kind, r.name, units.size(r.size) if r.size else "", r.state) for r in removals]
    freed = units.size(sum(r.size for r in removals if r.state in (REMOVED, TO_REMOVE)))
    return f"{tables.render(('Kind', 'Name', 'Size', 'State'), rows)}\n{freed} in all"


def as_json(removals: Sequence[Removal]) -> str:
    """Return the same for programs."""
    return json.dumps([asdict(removal) for removal in removals], indent=2)

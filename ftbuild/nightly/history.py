"""Earlier nights on this machine: what they took, where they lie, and when they are thrown away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ftbuild.nightly import record
from ftbuild.nightly.record import NightlyRun, PastRun

FOLDER = "nights"
KEPT = 30
REMEMBERED = 14


def nights(work: Path) -> list[Path]:
    """The folders of all nights, the oldest first."""
    return sorted(file.parent for file in (work / FOLDER).glob(f"*/{record.FILE}"))


def remembered(work: Path) -> tuple[PastRun, ...]:
    """What the last nights say, the oldest first; a report of another version of ftbuild says nothing."""
    return tuple(night.summary() for night in _readable(nights(work)[-REMEMBERED:]))


def last(work: Path) -> tuple[Path, NightlyRun] | None:
    """The night that was begun last, if it can be read."""
    for folder in nights(work)[-1:]:
        for night in _readable([folder]):
            return folder, night
    return None


def forget(work: Path) -> None:
    """Remove all but the newest KEPT."""
    for folder in nights(work)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def _readable(folders: list[Path]) -> Iterator[NightlyRun]:
    for folder in folders:
        try:
            yield record.read(folder)
        except (OSError, ValueError):
            continue

"""Earlier nightly runs on this machine: their folders, their records, and when they are deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ftbuild.nightly import record
from ftbuild.nightly.record import NightlyRun, PastRun

FOLDER = "nights"
KEPT = 30
REMEMBERED = 14


def folders(work: Path) -> list[Path]:
    """Return the folders of all runs, oldest first."""
    return sorted(file.parent for file in (work / FOLDER).glob(f"*/{record.FILE}"))


def remembered(work: Path) -> tuple[PastRun, ...]:
    """Return the summaries of the last `REMEMBERED` runs, oldest first, skipping unreadable reports."""
    return tuple(run.summary() for run in _readable(folders(work)[-REMEMBERED:]))


def last(work: Path) -> tuple[Path, NightlyRun] | None:
    """Return folder and record of the newest run, or None if there is none or it cannot be read."""
    for folder in folders(work)[-1:]:
        for run in _readable([folder]):
            return folder, run
    return None


def forget(work: Path) -> None:
    """Delete all but the newest `KEPT` runs."""
    for folder in folders(work)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def _readable(folders: list[Path]) -> Iterator[NightlyRun]:
    for folder in folders:
        try:
            yield record.read(folder)
        except (OSError, ValueError):
            continue

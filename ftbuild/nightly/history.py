"""Earlier nightly runs on this machine: their folders, their records, and when they are deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ftbuild.nightly import record
from ftbuild.nightly.record import NightlyRun, PastRun

FOLDER = "nights"
KEPT = 30
REMEMBERED = 14
# In records of earlier versions.
UNKNOWN = ""


def folders(work: Path) -> list[Path]:
    """Return the folders of all runs, oldest first."""
    return sorted(file.parent for file in (work / FOLDER).glob(f"*/{record.FILE}"))


def remembered(work: Path, config: str) -> tuple[PastRun, ...]:
    """Return the summaries of the last `REMEMBERED` runs of a configuration, oldest first.

    Cells of another one may have the same names, and cannot be compared. Unreadable reports are skipped.
    """
    readable = _readable(folders(work)[::-1])
    same = (run.summary() for run in readable if run.config in (config, UNKNOWN))
    return tuple(islice(same, REMEMBERED))[::-1]


def last(work: Path) -> tuple[Path, NightlyRun] | None:
    """Return folder and record of the newest run, or None if there is none or it cannot be read."""
    for folder in folders(work)[-1:]:
        for run in _readable([folder]):
            return folder, run
    return None


def forget(work: Path) -> None:
    """Delete all but the newest `KEPT` runs, but nothing foreign, and nothing behind a link."""
    for folder in folders(work)[:-KEPT]:
        if not folder.is_symlink() and any(_readable([folder])):
            shutil.rmtree(folder, ignore_errors=True)


def _readable(folders: list[Path]) -> Iterator[NightlyRun]:
    for folder in folders:
        try:
            yield record.read(folder)
        except (OSError, ValueError):
            continue

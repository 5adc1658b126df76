"""Earlier nightly runs on this machine: their folders, their records, and when they are deleted."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from ftbuild.nightly import record
from ftbuild.nightly.record import NightlyRun, PastRun
from ftbuild.text.reporter import Reporter

FOLDER = "nights"
KEPT = 30
REMEMBERED = 14
# In records of earlier versions.
UNKNOWN = ""
_ID = "%Y-%m-%dT%H-%M-%SZ"


def new_id(work: Path, now: datetime, report: Reporter) -> str:
    """Return the id of a run that begins: its time, or the second after the last run where that is later.

    Order is by id, so where the clock has gone back, this run would not be the last one: another would be
    resumed, and this one be forgotten first.
    """
    begun = now.astimezone(UTC).replace(microsecond=0)
    for folder in folders(work):
        with contextlib.suppress(ValueError):
            begun = max(begun, datetime.strptime(folder.name, _ID).replace(tzinfo=UTC) + timedelta(seconds=1))
    name = begun.strftime(_ID)
    if begun > now + timedelta(seconds=1):
        report(f"the clock is behind the last nightly run: this one is called {name} all the same")
    return name


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

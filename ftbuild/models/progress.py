"""Progress of a growing folder: a bar on a terminal, lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ftbuild.text.reporter import Reporter
from ftbuild.text.units import duration
from ftbuild.text.units import size as size_text

STEP_PERCENT = 10


def size(folder: Path) -> int:
    """Return the bytes of all files below `folder`, some of which may vanish meanwhile; follows no link."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        total += _bytes(entry)
        except OSError:  # gone, or deeper than a path can be long
            continue
    return total


def _bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


class Watch:
    """The seconds since a folder last grew; call it now and then."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._last, self._since = folder, -1, time.monotonic()

    def __call__(self) -> float:
        """Return the seconds since the size of the folder last changed."""
        now, current = time.monotonic(), size(self._folder)
        if current != self._last:
            self._last, self._since = current, now
        return now - self._since


@contextmanager
def shown(title: str, folder: Path, total: int, report: Reporter) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the bytes in `folder` against `total`, to call at any rate."""
    if sys.stderr.isatty():
        with _bar(title, folder, total) as update:
            yield update
    else:
        yield _Lines(title, folder, total, report)


class _Lines:
    """A reported line for every STEP_PERCENT more, with the mean rate and the time that is left at it."""

    def __init__(self, title: str, folder: Path, total: int, report: Reporter) -> None:
        self._title, self._folder, self._total, self._report = title, folder, max(total, 1), report
        self._next, self._start = STEP_PERCENT, time.monotonic()

    def __call__(self) -> None:
        done = size(self._folder)
        percent = min(100, 100 * done // self._total)
        if percent >= self._next:
            rate = done / max(time.monotonic() - self._start, 1e-6)
            left = f", {duration((self._total - done) / rate)} left" if done < self._total else ""
            written = f"{done / 1e9:.1f} of {self._total / 1e9:.1f} GB, {size_text(rate)}/s"
            self._report(f"{self._title}: {percent} %, {written}{left}")
            self._next = percent - percent % STEP_PERCENT + STEP_PERCENT


@contextmanager
def _bar(title: str, folder: Path, total: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Commands' own stream takes out what a bar is drawn with.
    console = Console(file=getattr(sys.stderr, "drawing", sys.stderr))
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.update(task, completed=size(folder))

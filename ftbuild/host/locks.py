"""The lock of a cell's work folder: one command at a time writes its images, its records, its tags.

It is the kernel's (flock), so that no killed command leaves it behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ftbuild.errors import HostError
from ftbuild.text.reporter import Reporter

NAME = "lock"
# A gate or a publication waits for another one; a build, which takes longer, is not waited for by the next.
SECONDS = 600.0
BUILD_SECONDS = 10.0


@contextmanager
def cell(folder: Path, report: Reporter, *, patience: float | None = None) -> Iterator[None]:
    """Hold the lock of a cell's folder; HostError when another command keeps it longer than `patience`.

    That is in seconds, and `SECONDS` by default.
    """
    seconds = SECONDS if patience is None else patience
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / NAME)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"another command works on this cell: waiting up to {seconds:g} s")
        try:
            lock.acquire(timeout=seconds)
        except Timeout as busy:
            raise HostError(
                "another command works on this cell", where=str(folder), hint="wait until it has ended"
            ) from busy
    try:
        yield
    finally:
        lock.release()

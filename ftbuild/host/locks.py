"""Locks between processes. That of a cell's work folder: one command at a time writes its images and records.

They are the kernel's (flock), so that no killed command leaves one behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ftbuild.errors import HostError
from ftbuild.host import marker
from ftbuild.text.reporter import Reporter

NAME = "lock"
# A gate or a publication waits for another one; a build, which takes longer, is not waited for by the next.
SECONDS = 600.0
BUILD_SECONDS = 10.0


@contextmanager
def held(file: Path, report: Reporter, waiting: str, *, patience: float = -1) -> Iterator[None]:
    """Hold the lock `file`; report `waiting` when another process has it, and wait up to `patience` seconds.

    Less than 0: as long as it takes; 0: no wait, nothing reported. Raises filelock's Timeout.
    """
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not patience:
            raise
        report(waiting)
        lock.acquire(timeout=patience)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def cell(folder: Path, report: Reporter, *, patience: float | None = None) -> Iterator[None]:
    """Hold the lock of a cell's folder; HostError when another command keeps it longer than `patience`.

    That is in seconds, and `SECONDS` by default.
    """
    seconds = SECONDS if patience is None else patience
    folder.mkdir(parents=True, exist_ok=True)
    marker.put(folder)
    busy = "another command works on this cell"
    with ExitStack() as lock:
        try:
            waiting = f"{busy}: waiting up to {seconds:g} s"
            lock.enter_context(held(folder / NAME, report, waiting, patience=seconds))
        except Timeout as late:
            raise HostError(busy, where=str(folder), hint="wait until it has ended") from late
        yield

"""Locks between processes. That of a cell's work folder: one command at a time writes its images and records.

They are the kernel's (flock), so that no killed command leaves one behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ftbuild.errors import HostError
from ftbuild.host import marker, shell
from ftbuild.text.reporter import Reporter

NAME = "lock"
# How long a command waits for another one on the same cell, of whatever kind both are.
SECONDS = 600.0
_LOCKS, _PROC = Path("/proc/locks"), Path("/proc")


@contextmanager
def held(
    file: Path, report: Reporter, waiting: str, *, patience: float = -1, threads: bool = False
) -> Iterator[bool]:
    """Hold the lock `file`, and yield whether it was held already.

    Then `waiting` is reported, with the other process, and waited for up to `patience` seconds. Less than 0:
    as long as it takes; 0: no wait, nothing reported. Nor is a wait for this very process, where `threads` of
    it work side by side. Raises filelock's Timeout.
    """
    lock, waited = FileLock(file), False
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not patience:
            raise
        waited = True
        if not (threads and _process(file) == os.getpid()):
            report(f"{waiting}{holder(file)}")
        lock.acquire(timeout=patience)
    try:
        yield waited
    finally:
        lock.release()


@contextmanager
def cell(folder: Path, report: Reporter, what: str = "this cell") -> Iterator[bool]:
    """Hold the lock of the folder of a cell, or of `what` it is; yield whether another command had it.

    HostError when that keeps it longer than `SECONDS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker.put(folder)
    busy = f"another command is working on {what}"
    with ExitStack() as lock:
        try:
            waiting = f"{busy}: waiting up to {SECONDS:g} s for it"
            waited = lock.enter_context(held(folder / NAME, report, waiting, patience=SECONDS))
        except Timeout as late:
            by = holder(folder / NAME)
            raise HostError(f"{busy}{by}", where=str(folder), hint="wait until it has ended") from late
        yield waited


def holder(file: Path) -> str:
    """Return the process that holds a lock, as ` (process 1234: invoke build)`; empty where unknown."""
    try:
        pid = _process(file)
        words = (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    return f" (process {pid}: {shell.display([*filter(None, words)])})"


def _process(file: Path) -> int | None:
    """Return the id of the process that holds a lock, None where it is not known.

    By the kernel's list of locks, which names those of this machine (proc(5), /proc/locks).
    """
    try:
        inode = str(file.stat().st_ino)
        lines = [line.split() for line in _LOCKS.read_text().splitlines()]
        (pid,) = {words[4] for words in lines if words[1] == "FLOCK" and words[5].split(":")[-1] == inode}
        return int(pid)
    except (OSError, ValueError, IndexError):
        return None

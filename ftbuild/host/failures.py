"""Failures of the operating system as messages, and interrupts that a failing clean-up would hide."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftbuild.errors import HostError
from ftbuild.host import disk

# What a path of the user's may run into anywhere; other errors of the operating system are ftbuild's own.
_FILE_SYSTEM = {
    getattr(errno, name)
    for name in (
        "EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ELOOP",
        "ENAMETOOLONG",
    )
}  # fmt: skip
_WRITABLE = "change its rights, or use another place (FTBUILD_WORK and FTBUILD_CACHE name our own folders)"
_FULL = "the disk is full to which a file or the output of this command is written"
_ROOM = "free some space there (df -h), or write to another place"


@contextmanager
def reported() -> Iterator[None]:
    """Raise HostError for a file or folder that cannot be used, and KeyboardInterrupt for an interrupt.

    An error that comes up while an interrupted command cleans up after itself takes the place of the
    KeyboardInterrupt: a caller that catches it would go on with the next piece of work.
    """
    try:
        yield
    except Exception as failure:
        if _is_interrupted(failure):
            raise KeyboardInterrupt from failure
        if isinstance(failure, OSError) and failure.errno in _FILE_SYSTEM:
            raise _unusable(failure) from failure
        raise


def _unusable(failure: OSError) -> HostError:
    where = None if failure.filename is None else str(failure.filename)
    if disk.is_full(failure):
        # A write has no name: what the output goes to may be full, on another disk than any folder of ours.
        return disk.full(Path(where)) if where else HostError(_FULL, hint=_ROOM)
    if failure.errno == errno.ENOENT and not _has_working_folder():
        what = "the folder in which this command was started no longer exists"
        return HostError(what, where=where, hint="change to another folder (cd), and run it again")
    hint = _WRITABLE if failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else None
    return HostError(f"cannot use a file or folder: {failure.strerror}", where=where, hint=hint)


def _has_working_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  Path.cwd() is the same call
    except FileNotFoundError:
        return False
    return True


def _is_interrupted(failure: BaseException) -> bool:
    context = failure.__context__
    return context is not None and (isinstance(context, KeyboardInterrupt) or _is_interrupted(context))

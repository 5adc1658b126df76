"""Room on a disk, also for a folder that does not exist yet."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftbuild.errors import HostError
from ftbuild.text.units import GIB

ROOM = (
    "free some space (invoke clean), or put FTBUILD_CACHE (sources) or FTBUILD_WORK (builds) on another disk"
)


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free on the file system where `folder` is, or would be made."""
    return shutil.disk_usage(nearest(folder)).free


def nearest(folder: Path) -> Path:
    """Return `folder`, or the nearest folder above it that exists."""
    absolute = folder.absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())


def require(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise HostError unless the file system of `folder` has that much room."""
    free = free_bytes(folder)
    if free < needed_bytes:
        raise HostError(
            f"{purpose} needs {needed_bytes / GIB:.0f} GiB of disk, {free / GIB:.1f} GiB are free",
            where=str(nearest(folder)),
            hint="invoke clean removes old builds, docker builder prune old layers; FTBUILD_CACHE and "
            "FTBUILD_WORK move our own folders",
        )


def is_full(error: OSError) -> bool:
    """Return whether an error is that of a full disk or an exhausted quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full(folder: Path) -> HostError:
    """Make the error for a disk that `folder` has filled."""
    return HostError(
        f"the disk is full: {free_bytes(folder) / 1e6:.1f} MB are free",
        where=str(folder),
        hint=ROOM,
    )


@contextmanager
def report_full(folder: Path) -> Iterator[None]:
    """Turn the OSError of a full disk or quota into a HostError that a user can act on."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(folder) from error
        raise

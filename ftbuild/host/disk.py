"""Room on a disk, also for a folder that does not exist yet."""

from __future__ import annotations

import shutil
from pathlib import Path

from ftbuild.errors import HostError
from ftbuild.text.units import GIB


def free_bytes(folder: Path) -> int:
    """Bytes that are free on the file system where `folder` is, or would be made."""
    return shutil.disk_usage(nearest(folder)).free


def nearest(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that exists."""
    absolute = folder.absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())


def require(folder: Path, needed_bytes: int, purpose: str) -> None:
    """HostError unless the file system of `folder` has that much room."""
    free = free_bytes(folder)
    if free < needed_bytes:
        raise HostError(
            f"{purpose} needs {needed_bytes / GIB:.0f} GiB of disk, {free / GIB:.1f} GiB are free",
            where=str(nearest(folder)),
            hint="docker builder prune frees old layers; FTBUILD_CACHE and FTBUILD_WORK move our own folders",
        )

"""Atomic writes: a crash leaves the old file or folder, or the whole new one.

Everything is written beside its place, as `<name>.partial`, and renamed. What a killed run left there is
removed by the next write.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftbuild.errors import HostError
from ftbuild.host import disk


def write_atomic(file: Path, content: str | bytes) -> None:
    """Write `content` (text as UTF-8), making the folder if need be; HostError when that is impossible."""
    with _reported(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as partial:
            partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(file: Path) -> Iterator[Path]:
    """Yield the path to write to; when the block ends without an error, that file replaces `file`."""
    partial = _beside(file)
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; when the block ends without an error, it becomes `folder`, which must not exist.

    Raises HostError when it cannot be made.
    """
    partial = _beside(folder)
    with _reported(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn an OSError into a HostError that names the path."""
    with disk.report_full(path.parent):
        try:
            yield
        except OSError as refused:
            if disk.is_full(refused):
                raise
            raise HostError(
                f"{path.name} cannot be written: {refused.strerror}",
                where=str(path.parent),
                hint="make the folder writable, or choose another one",
            ) from refused

"""Atomic writes: a crash leaves the old file or folder, or the whole new one.

Everything is written in a folder of its own beside its place, `.<name>.<random>.partial`, brought to the disk
and renamed. That folder carries ftbuild's mark, and the writer holds a lock on it, so that the next write of
the same name can tell what a killed one has left, and removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftbuild.errors import HostError
from ftbuild.host import disk, marker

PARTIAL = ".partial"
# File systems that cannot bring a file or folder to the disk say one of these (fsync(2)).
_NO_FSYNC = (errno.EINVAL, errno.ENOTSUP)


def write_atomic(file: Path, content: str | bytes) -> None:
    """Write `content` (text as UTF-8), making the folder if need be; HostError when that is impossible."""
    with _reported(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as partial:
            partial.write_bytes(content.encode() if isinstance(content, str) else content)


def write_private(file: Path, content: bytes) -> None:
    """Write a file as `write_atomic` does, for its owner alone to read."""
    with _reported(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as partial:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)


def write_new(file: Path, content: str) -> None:
    """Write a text file that does not exist; FileExistsError when anything is there, a link included."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o666), "w", encoding="utf-8") as stream:
        stream.write(content)


@contextmanager
def atomic_file(file: Path) -> Iterator[Path]:
    """Yield the path to write to; when the block ends without an error, that file replaces `file`.

    The mode of `file` stays; a new one has the mode that its writer gave it.
    """
    with workplace(file) as place:
        partial = place / file.name
        yield partial
        with contextlib.suppress(FileNotFoundError):
            partial.chmod(stat.S_IMODE(file.stat().st_mode))
        _persist(partial)
        partial.replace(file)
        _persist(file.parent)


@contextmanager
def atomic_folder(folder: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield an empty folder; when the block ends without an error, it becomes `folder`, which must not exist.

    Unless `durable`, a power loss may empty files in it: for contents that are checked before each use, as
    thousands of small files take seconds to reach the disk. Raises HostError when it cannot be made.
    """
    with contextlib.ExitStack() as at_end:
        with _reported(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = at_end.enter_context(workplace(folder)) / folder.name
            partial.mkdir()
        yield partial
        for parent, _, names in os.walk(partial) if durable else ():
            for name in names:
                _persist(Path(parent, name))
            _persist(Path(parent))
        partial.rename(folder)
        _persist(folder.parent)


@contextmanager
def workplace(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, locked until the end of the block, which removes it.

    That of a killed process is a leftover, which the next one for the same path removes.
    """
    remove_leftovers(path.parent, path.name)
    place, descriptor = _locked_folder(path)
    try:
        yield place
    finally:
        marker.remove(place)
        os.close(descriptor)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of `name` (default: of anything) have left in `folder`."""
    for place in _unlocked(folder, name):
        marker.remove(place)


def leftovers(folder: Path) -> list[Path]:
    """Return what killed writers have left in `folder`."""
    return list(_unlocked(folder))


def _unlocked(folder: Path, name: str = "*") -> Iterator[Path]:
    """Yield the workplaces that no writer holds, each locked meanwhile; others have the same names."""
    pattern = name if name == "*" else glob.escape(name)
    for place in folder.glob(f".{pattern}.*{PARTIAL}"):
        if not marker.is_on(place):
            continue
        with contextlib.suppress(OSError), _opened(place) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield place


def _locked_folder(path: Path) -> tuple[Path, int]:
    """Make the folder and lock it; again if another process took it for a leftover in between."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                with contextlib.suppress(OSError):  # without locks, nothing is ever taken for a leftover
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                place.stat()
                marker.put(place)
            except BaseException:
                os.close(descriptor)
                raise
            return place, descriptor


def _persist(path: Path) -> None:
    """Bring a file or folder to the disk: after a power loss, a renamed file would be empty otherwise."""
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    with _opened(path) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as failed:
            if failed.errno not in _NO_FSYNC:
                raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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

"""The mark of a folder that ftbuild has made, and may remove as a whole.

A work or cache folder may also hold other files: a name alone proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

NAME = ".made-by-ftbuild"
TEXT = "Made by ftbuild, which may remove this folder with all that is in it.\n"


def put(folder: Path) -> None:
    """Mark a folder that exists."""
    with contextlib.suppress(FileExistsError), (folder / NAME).open("x", encoding="utf-8") as file:
        file.write(TEXT)


def is_on(folder: Path) -> bool:
    """Return whether a folder, itself and not by a link, carries the mark."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return False
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(len(TEXT) + 1) == TEXT.encode()
    except OSError:
        return False


def remove(folder: Path) -> None:
    """Remove a marked folder as far as possible, its mark last: what a killed removal leaves has it still."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != NAME:
                with contextlib.suppress(OSError):
                    entry.unlink()
        if [entry.name for entry in folder.iterdir()] == [NAME]:
            (folder / NAME).unlink()
        folder.rmdir()

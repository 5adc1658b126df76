"""Tar archives that come from elsewhere, unpacked into a folder that nothing of theirs may leave."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ftbuild.errors import FtbuildError

# Python 3.11 has the filters of PEP 706 since 3.11.4, and Debian 12 has 3.11.2.
if TYPE_CHECKING or sys.version_info >= (3, 12):
    import tarfile
else:
    from backports import tarfile


class Unsound(FtbuildError):
    """An archive that cannot be read, or an entry of it that would leave the folder."""


def unpack(archive: IO[bytes], folder: Path) -> None:
    """Unpack an uncompressed archive into a folder.

    Raises Unsound for what is no archive, for entries that would leave the folder, and for those that are no
    files, folders or links within it (PEP 706, filter "data"); OSError if the disk refuses.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:") as entries:
            entries.extractall(folder, filter="data")
    except tarfile.TarError as wrong:
        raise Unsound(str(wrong)) from wrong

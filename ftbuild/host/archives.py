"""Tar archives: ours, the same for the same files, and what comes from elsewhere, which leaves no folder."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
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


def packed(files: Mapping[str, bytes], mode: int) -> bytes:
    """Return an uncompressed archive of files by their path, all of root's and with this mode and no time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()

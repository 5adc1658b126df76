"""The Debian packages of a local base as a build context: a folder for each set, with files and a list."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ftbuild.config.debian import SETS, LockedDebian, LockedPackage
from ftbuild.sources import downloads
from ftbuild.sources.debian import archive

CONTEXT = "debian"
LIST = "installed.txt"
# dpkg-query's format of a line of the list.
FORMAT = r"${Package} ${Version} ${Architecture}\n"


def stage(locked: LockedDebian, cache: Path, folder: Path) -> None:
    """Put the downloaded packages of every set but the system's into `folder`, with their lists."""
    for name in SETS:
        if SETS[name] is not None:
            files = [archive.download(package, locked) for package in locked.packages(name)]
            downloads.link_into(folder / name, files, cache)
            (folder / name / LIST).write_text(listing(locked.installed(name)))


def listing(packages: Iterable[LockedPackage]) -> str:
    """Return the lines that dpkg-query prints for installed packages, sorted by bytes."""
    return "".join(sorted(f"{p.name} {p.version} {p.architecture}\n" for p in packages))

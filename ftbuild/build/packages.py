"""The Debian packages of a local base as a build context: a folder for each set, with files and a list.

That of the set `serving` also says what images do without.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ftbuild.config.debian import SETS, LockedDebian, LockedPackage
from ftbuild.sources import downloads
from ftbuild.sources.debian import archive, left_out

CONTEXT = "debian"
LIST = "installed.txt"
# dpkg-query's format of a line of the list.
FORMAT = r"${Package} ${Version} ${Architecture}\n"
# Of the package that provides the names of those left out (steps/apt-install.sh).
CONTROL = "without.control"


def stage(locked: LockedDebian, cache: Path, folder: Path) -> None:
    """Put the downloaded packages of every set but the system's into `folder`, with their lists."""
    for name in SETS:
        if SETS[name] is not None:
            files = [archive.download(package, locked) for package in locked.packages(name)]
            downloads.link_into(folder / name, files, cache)
            (folder / name / LIST).write_text(listing(locked.installed(name), left_out.listed(locked, name)))
    if locked.without:
        (folder / "serving" / CONTROL).write_text(left_out.control(locked.without))


def listing(packages: Iterable[LockedPackage], more: Iterable[str] = ()) -> str:
    """Return the lines that dpkg-query prints for installed packages and `more`, sorted by bytes."""
    return "".join(
        f"{line}\n" for line in sorted([f"{p.name} {p.version} {p.architecture}" for p in packages] + [*more])
    )

"""Debian's archives: mirrors of today's state, and snapshots of older ones.

The lock has every file's sha256, so that a download needs no trust in the mirror.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from ftbuild.config.debian import SNAPSHOT, LockedDebian, LockedPackage
from ftbuild.sources.downloads import Download

# Archive -> the variable that names a mirror of it, and the mirror without one.
MIRRORS: Mapping[str, tuple[str, str]] = {
    "debian": ("DEBIAN_MIRROR", "http://deb.debian.org/debian"),
    "debian-security": ("DEBIAN_SECURITY_MIRROR", "http://security.debian.org/debian-security"),
}
SNAPSHOTS = "http://snapshot.debian.org/archive"
_DATED = re.compile(r"/(\d{8}T\d{6}Z)(?:/|$)")


def mirror(archive: str) -> str:
    """Return the URL of an archive."""
    variable, default = MIRRORS[archive]
    return (os.environ.get(variable) or default).rstrip("/")


def dated(url: str) -> str | None:
    """Return the time of a mirror that is a snapshot, else None."""
    found = _DATED.search(url)
    return found[1] if found else None


def now() -> str:
    """Return the time of what the mirrors have: theirs if they are snapshots (the later one), else now."""
    times = [time for archive in MIRRORS if (time := dated(mirror(archive)))]
    return max(times, default=datetime.now(UTC).strftime(SNAPSHOT))


def urls(package: LockedPackage, locked: LockedDebian) -> Iterator[str]:
    """Yield where a package file can be found, nearest first."""
    variable, default = MIRRORS[package.archive]
    for root in dict.fromkeys(filter(None, (os.environ.get(variable), default))):
        yield f"{root.rstrip('/')}/{package.path}"
    # A snapshot is taken some hours after a package appears; one day later it is there in any case.
    for time in (locked.time, locked.time + timedelta(days=1)):
        yield f"{SNAPSHOTS}/{package.archive}/{time.strftime(SNAPSHOT)}/{package.path}"


def download(package: LockedPackage, locked: LockedDebian) -> Download:
    """Return the file of a package for the store of downloads."""
    return Download(package.file, package.sha256, tuple(urls(package, locked)), package.size)


def downloads(locked: LockedDebian) -> tuple[Download, ...]:
    """Return the files of every package of a base."""
    return tuple(download(package, locked) for package in locked.every())

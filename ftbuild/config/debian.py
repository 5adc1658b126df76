"""Schema of a local base's Debian packages: the names asked for, and the lock of what they became."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from ftbuild.architecture import MACHINES
from ftbuild.config.types import Model, Name, Shape

LOCK_FILE = "debian.lock.yaml"
SNAPSHOT = "%Y%m%dT%H%M%SZ"
# A set of packages, and the one that it is installed on.
SETS: Mapping[PackageSet, PackageSet | None] = {
    "os": None,
    "unpack": "os",
    "serving": "os",
    "devel": "serving",
    "compile": "os",
}
PackageSet = Literal["os", "unpack", "serving", "devel", "compile"]
RequestedSet = Literal["unpack", "serving", "devel", "compile"]
# Debian Policy, 5.6.1 and 5.6.12. They become parts of paths.
_NAME, _VERSION = r"[a-z0-9][a-z0-9+.-]+", r"[0-9][0-9A-Za-z.+:~-]*"
_PATH = r"pool(?:/[0-9A-Za-z][0-9A-Za-z.+~_-]*)+\.deb"
PackageName = Annotated[str, Shape(_NAME, "the name of a Debian package")]
Snapshot = Annotated[
    str,
    Shape(
        r"[0-9]{8}T[0-9]{6}Z",
        "a time such as 20260131T120000Z",
        check=lambda text: datetime.strptime(text, SNAPSHOT),
    ),
]
Suite = Annotated[str, Shape(r"[a-z]+", "the name of a Debian release, such as bookworm")]
PackageVersion = Annotated[str, Shape(_VERSION, "the version of a Debian package")]
# dpkg's configuration takes one in a line.
PathPattern = Annotated[
    str, Shape(r"/[^\s/][^\s]*", "a pattern of absolute paths, as --path-exclude of dpkg(1) takes it")
]
# One text for each of hundreds of packages, since the lock is read with every configuration.
PackageLine = Annotated[
    str,
    Shape(
        rf"{_NAME} {_VERSION} (?:{'|'.join((*MACHINES, 'all'))}) (?:debian|debian-security) "
        rf"[1-9][0-9]* [0-9a-f]{{64}} {_PATH}",
        "NAME VERSION ARCHITECTURE ARCHIVE BYTES SHA256 PATH of a Debian package",
        most=500,
    ),
]


class DebianPackages(Model):
    """The system of a local base: a suite of Debian, and packages by the stage that installs them."""

    suite: Suite = Field(description="with its updates and security updates; one that debootstrap knows")
    components: tuple[Literal["main", "contrib", "non-free", "non-free-firmware"], ...] = Field(
        default=("main",), description="areas of the archive that packages are from"
    )
    packages: Mapping[RequestedSet, tuple[PackageName, ...]] = Field(
        description="names alone: versions are in the lock. unpack: to unpack wheels; compile: to compile "
        "the server; neither is in an image"
    )
    without: tuple[PackageName, ...] = Field(
        default=(),
        description="packages that others depend on and nothing here loads: images have an empty package "
        "that provides their names",
    )
    without_files: tuple[PathPattern, ...] = Field(
        default=(), description="files of packages that images do without (--path-exclude of dpkg(1))"
    )


@dataclass(frozen=True)
class LockedPackage:
    """A package file of Debian's archive; `path` is in the pool of `archive`."""

    name: str
    version: str
    architecture: str
    archive: str
    size: int
    sha256: str
    path: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        """Return its line in the lock."""
        return " ".join(map(str, astuple(self)))


def parse(line: PackageLine) -> LockedPackage:
    """Return the package of a line of the lock."""
    name, version, architecture, archive, size, sha256, path = line.split()
    return LockedPackage(name, version, architecture, archive, int(size), sha256, path)


class LockedDebian(Model):
    """What the packages of one base were resolved to, dependencies included."""

    snapshot: Snapshot = Field(description="time of the archive's state, as snapshot.debian.org writes it")
    requested: DebianPackages = Field(description="what bases.yaml asked for")
    sets: Mapping[PackageSet, tuple[PackageLine, ...]] = Field(
        description="os: the system itself; each set without what it is installed on"
    )
    without: Mapping[PackageName, PackageVersion] = Field(
        default={}, description="the packages that images do without, and the version each would have"
    )

    @property
    def time(self) -> datetime:
        """The snapshot's time."""
        return datetime.strptime(self.snapshot, SNAPSHOT).replace(tzinfo=UTC)

    @property
    def architectures(self) -> frozenset[str]:
        """The architectures of its packages, but for those that are for all."""
        return frozenset(package.architecture for package in self.every()) - {"all"}

    def packages(self, name: PackageSet) -> tuple[LockedPackage, ...]:
        """Return the packages of one set."""
        return tuple(parse(line) for line in self.sets.get(name, ()))

    def installed(self, name: PackageSet) -> Iterator[LockedPackage]:
        """Yield the packages that are installed once a set is."""
        below = SETS[name]
        if below:
            yield from self.installed(below)
        yield from self.packages(name)

    def every(self) -> tuple[LockedPackage, ...]:
        """Return every package once; sets may share some."""
        return tuple({package.sha256: package for name in SETS for package in self.packages(name)}.values())


class DebianLock(Model):
    """debian.lock.yaml, written by `invoke lock`."""

    bases: Mapping[Name, LockedDebian] = Field(default={}, description="by local base")

"""Schema of a buildcfg folder: matrix, sources, patches, bases, lock, and all of them as one Config."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field

from ftbuild.config import debian, holes
from ftbuild.config.bases import BasesConfig
from ftbuild.config.debian import DebianLock
from ftbuild.config.document import Document
from ftbuild.config.families import ModelsConfig
from ftbuild.config.holes import HolesConfig
from ftbuild.config.types import (
    Commit,
    Day,
    EntryName,
    EntryPath,
    FilePath,
    FilePattern,
    GitRef,
    GitUrl,
    ImageDigest,
    Model,
    Name,
    Release,
    Sha256,
    SmNumber,
    Source,
    SpecifierText,
    Text,
    TreePath,
    VersionText,
)
from ftbuild.sm import Sm

LOCK_FILE = "sources.lock.yaml"
# A folder without them has locked nothing.
LOCKS = (LOCK_FILE, debian.LOCK_FILE)
# A folder without it knows of no holes.
OPTIONAL = (*LOCKS, holes.FILE)


class SmFact(Model):
    """An SM architecture and the CUDA toolkits that compile for it."""

    cuda: VersionText = Field(description="first CUDA toolkit whose nvcc knows the architecture")
    before: VersionText | None = Field(
        default=None, description="first CUDA toolkit whose nvcc no longer does; null: none so far"
    )
    name: Text = Field(description="NVIDIA's name of the architecture")
    gpus: Mapping[Text, Annotated[int, Field(gt=0, lt=10_000)]] = Field(
        default={}, description="GPU -> its memory in GB (10^9 bytes), as NVIDIA's data sheets have it"
    )
    source: Source


class PatchedSm(Model):
    """An SM that the release compiles only with one of our patches."""

    patch: EntryPath = Field(description="series entry, as <component>/<file>")
    source: Source


class ReleaseSms(Model):
    """The SMs that FasterTransformer of a release compiles."""

    builds: tuple[SmNumber, ...] = Field(description="without a patch of ours")
    source: Source
    patched: Mapping[SmNumber, PatchedSm] = Field(
        default={}, description="the others that a patch of ours makes it compile"
    )


class ReleaseConfig(Model):
    """One Triton release and what upstream pairs with it."""

    server: VersionText = Field(description="version of Triton Inference Server")
    cuda: VersionText = Field(description="CUDA of NVIDIA's image of this release")
    driver: VersionText = Field(description="oldest driver that CUDA version runs on")
    source: Source
    base: Name = Field(description="base of its cells where no other is asked for: one that was built here")
    default_sms: tuple[SmNumber, ...] = Field(min_length=1, description="built when no SM is asked for")
    support_end: Day | None = Field(
        default=None,
        description="last day on which its images on a base built here get fixes; null: none is promised",
    )
    sms: ReleaseSms = Field(description="what FasterTransformer of this release compiles")


class MatrixConfig(Model):
    """matrix.yaml: releases, SM architectures and the facts that decide which pairs exist."""

    image: Name = Field(description="name of the images built")
    compression: Literal["zstd", "gzip"] = Field(
        default="zstd",
        description="of layers in a registry: zstd, or gzip, which is larger, for Docker Engine before 23",
    )
    sms: Mapping[SmNumber, SmFact] = Field(min_length=1, description="by number, such as 80")
    releases: Mapping[Release, ReleaseConfig] = Field(min_length=1, description="by release, such as 22.12")


class Repository(Model):
    """A git repository and the place of its tree below the source tree (/src in the build)."""

    url: GitUrl = Field(description="git URL, or a path relative to this file")
    path: TreePath = Field(description="where CMake expects the tree")
    mirrors: tuple[GitUrl, ...] = Field(default=(), description="tried in order after `url`")
    sparse: tuple[TreePath, ...] = Field(default=(), description="only these folders are taken; empty: all")
    without: tuple[FilePattern, ...] = Field(
        default=(), description="files that no build reads (fnmatch patterns)"
    )
    by_sm: Mapping[SmNumber, tuple[FilePattern, ...]] = Field(
        default={}, description="files that only a GPU of this SM, or of another one that names them, needs"
    )
    server: bool = Field(default=False, description="of the server, which a local base may compile")

    def left_out(self, sms: Collection[Sm]) -> tuple[str, ...]:
        """Return the patterns of files that images of `sms` (none: of any) do not need.

        An image runs on every later SM too, as machine code or through its PTX.
        """
        kept = {pattern for sm, names in self.by_sm.items() if sm >= min(sms, default=0) for pattern in names}
        every = (pattern for names in self.by_sm.values() for pattern in names)
        return (*self.without, *(pattern for pattern in dict.fromkeys(every) if pattern not in kept))


class SourceRef(Model):
    """The ref of a repository that a release uses."""

    ref: GitRef = Field(description="full ref (refs/tags/..., refs/heads/...) or a 40-digit commit")
    version: VersionText | None = Field(default=None, description="version that patch ranges refer to")
    optional: bool = Field(default=False, description="no image to publish needs it: fetched when asked for")


class SourcesConfig(Model):
    """sources.yaml: repositories and the refs of each release."""

    repositories: Mapping[Name, Repository] = Field(description="by the name that releases give them")
    releases: Mapping[Release, Mapping[Name, SourceRef]] = Field(
        description="release -> repository -> what is built of it"
    )

    def built(self, release: str) -> tuple[str, ...]:
        """Return the repositories that the images of a release are built from."""
        return tuple(name for name, source in self.releases[release].items() if not source.optional)


class LockedSource(Model):
    """A ref resolved to the commit and the tree that are built."""

    ref: GitRef = Field(description="of sources.yaml, which was resolved")
    commit: Commit = Field(description="what the ref led to")
    tree: Commit = Field(description="of the commit; a build compares it")


class LockedBackport(Model):
    """An upstream commit applied by reference, and the hash of its diff."""

    tree: Commit = Field(description="of the upstream commit")
    diff: Sha256 = Field(description="of its diff as git writes it")


class Lock(Model):
    """sources.lock.yaml, written by `invoke lock`."""

    sources: Mapping[Release, Mapping[Name, LockedSource]] = Field(
        {}, description="release -> repository -> what is built of it"
    )
    backports: Mapping[Name, Mapping[Commit, LockedBackport]] = Field(
        {}, description="repository -> upstream commit that is applied by reference"
    )
    bases: Mapping[Name, Mapping[Release, Sha256]] = Field(
        {}, description="base -> release -> digest of its image in a registry"
    )
    objects: Mapping[Name, ImageDigest] = Field(
        {},
        description="by cell id, what was compiled elsewhere; written by invoke lock --objects-from REGISTRY",
    )


class PatchRange(Model):
    """The component versions a series entry is meant for, and what it can leave out of lean cells."""

    versions: SpecifierText = Field(description="of the component that the entry applies to")
    leaves_out: tuple[Literal["beams", "experts", "heads", "int8"], ...] = Field(
        (),
        description="what cells of `--without` and `--head-sizes` leave out by it; no other cell takes it",
    )

    def takes(self, version: str) -> bool:
        """Return whether a version of the component is meant; none is where a release lacks it."""
        return bool(version) and SpecifierSet(self.versions).contains(Version(version), prereleases=True)


class PatchesConfig(Model):
    """patches.yaml: where the series lie and which component versions each entry is meant for."""

    directory: FilePath = Field(description="folder of the series, relative to this file")
    ranges: Mapping[Name, Mapping[EntryName, PatchRange]] = Field(
        description="component -> entry of its series"
    )


@dataclass(frozen=True)
class Config:
    """All of one buildcfg folder."""

    folder: Path
    matrix: MatrixConfig
    sources: SourcesConfig
    lock: Lock
    debian_lock: DebianLock
    patches: PatchesConfig
    bases: BasesConfig
    models: ModelsConfig
    holes: HolesConfig = field(default_factory=HolesConfig)
    documents: Mapping[str, Document] = field(default_factory=dict, compare=False, repr=False)

    def place(self, file: str, *keys: str | int) -> str:
        """Return where a value stands, as `file:line`, for a message."""
        document = self.documents.get(file)
        return document.place(*keys) if document else str(self.folder / file)

    @property
    def patch_directory(self) -> Path:
        """Folder that holds `<component>/series`."""
        return self.path(self.patches.directory)

    def path(self, relative: str) -> Path:
        """Resolve a path of the configuration, relative to its folder."""
        return (self.folder / relative).resolve()

    def git_url(self, written: str) -> str:
        """Return a URL or `host:path` as it is (git-fetch(1), GIT URLS), anything else as a path."""
        return written if ":" in written.split("/")[0] else str(self.path(written))

    def version(self, release: str, component: str) -> str:
        """Return the version of a component that patch ranges refer to; empty where the release lacks it."""
        source = self.sources.releases[release].get(component)
        return (source.version or "") if source else ""

    def can_leave_out(self, release: str, feature: str) -> bool:
        """Return whether a release can be built without a feature: both have patches for that."""
        return all(
            any(
                feature in patch.leaves_out and patch.takes(self.version(release, component))
                for patch in self.patches.ranges.get(component, {}).values()
            )
            for component in ("ft", "backend")
        )

    @property
    def lock_file(self) -> Path:
        """Path of the machine-written lock."""
        return self.folder / LOCK_FILE

    @property
    def debian_lock_file(self) -> Path:
        """Path of the machine-written lock of Debian packages, which configurations may share by a link."""
        return (self.folder / debian.LOCK_FILE).resolve()


FILES: Mapping[str, type[Model]] = {
    "matrix.yaml": MatrixConfig,
    "sources.yaml": SourcesConfig,
    "patches.yaml": PatchesConfig,
    "bases.yaml": BasesConfig,
    "models.yaml": ModelsConfig,
    LOCK_FILE: Lock,
    debian.LOCK_FILE: DebianLock,
    holes.FILE: HolesConfig,
}


def json_schemas() -> dict[str, str]:
    """Return the JSON Schema of every file in a buildcfg folder, by schema file name, for editors and CI."""
    return {
        f"{Path(name).with_suffix('').name}.schema.json": json.dumps(model.model_json_schema(), indent=2)
        + "\n"
        for name, model in FILES.items()
    }

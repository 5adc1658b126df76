"""Schema of a buildcfg folder: matrix, sources, patches, bases, lock, and all of them as one Config."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from ftbuild.config.families import ModelsConfig
from ftbuild.config.types import Commit, Model, Release, Sha256, SmNumber, SpecifierText, VersionText
from ftbuild.sm import Sm

LOCK_FILE = "sources.lock.yaml"


class SmFact(Model):
    """An SM architecture and the first CUDA toolkit that compiles for it."""

    cuda: VersionText = Field(description="first CUDA toolkit whose nvcc knows the architecture")
    name: str = Field(description="NVIDIA's name of the architecture")
    source: str = Field(description="where the fact stands")


class PatchedSm(Model):
    """An SM that the release compiles only with one of our patches."""

    patch: str = Field(description="series entry, as <component>/<file>")
    source: str


class ReleaseSms(Model):
    """The SMs that FasterTransformer of a release compiles."""

    builds: tuple[SmNumber, ...] = Field(description="without a patch of ours")
    source: str = Field(description="file and line upstream")
    patched: Mapping[SmNumber, PatchedSm] = {}


class ReleaseConfig(Model):
    """One Triton release and what upstream pairs with it."""

    server: VersionText = Field(description="version of Triton Inference Server")
    cuda: VersionText = Field(description="CUDA of NVIDIA's image of this release")
    driver: VersionText = Field(description="oldest driver that CUDA version runs on")
    source: str
    default_sms: tuple[SmNumber, ...] = Field(min_length=1, description="built when no SM is asked for")
    sms: ReleaseSms


class MatrixConfig(Model):
    """matrix.yaml: releases, SM architectures and the facts that decide which pairs exist."""

    image: str = Field(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*$", description="name of the images built")
    sms: Mapping[SmNumber, SmFact]
    releases: Mapping[Release, ReleaseConfig]


class Repository(Model):
    """A git repository and the place of its tree below the source tree (/src in the build)."""

    url: str = Field(description="git URL, or a path relative to this file")
    path: str = Field(description="where CMake expects the tree")
    mirrors: tuple[str, ...] = Field(default=(), description="tried in order after `url`")
    sparse: tuple[str, ...] = Field(default=(), description="only these folders are taken; empty: all")
    without: tuple[str, ...] = Field(default=(), description="files that no build reads (fnmatch patterns)")
    by_sm: Mapping[SmNumber, tuple[str, ...]] = Field(
        default={}, description="files that only a GPU of this SM, or of another one that names them, needs"
    )

    def left_out(self, sms: Collection[Sm]) -> tuple[str, ...]:
        """Return the patterns of files that images of `sms` (none: of any) do not need.

        An image runs on every later SM too, as machine code or through its PTX.
        """
        kept = {pattern for sm, names in self.by_sm.items() if sm >= min(sms, default=0) for pattern in names}
        every = (pattern for names in self.by_sm.values() for pattern in names)
        return (*self.without, *(pattern for pattern in dict.fromkeys(every) if pattern not in kept))


class SourceRef(Model):
    """The ref of a repository that a release uses."""

    ref: str = Field(description="full ref (refs/tags/..., refs/heads/...) or a 40-digit commit")
    version: VersionText | None = Field(default=None, description="version that patch ranges refer to")
    optional: bool = Field(default=False, description="no image to publish needs it: fetched when asked for")


class SourcesConfig(Model):
    """sources.yaml: repositories and the refs of each release."""

    repositories: Mapping[str, Repository]
    releases: Mapping[Release, Mapping[str, SourceRef]]

    def built(self, release: str) -> tuple[str, ...]:
        """Return the repositories that the images of a release are built from."""
        return tuple(name for name, source in self.releases[release].items() if not source.optional)


class LockedSource(Model):
    """A ref resolved to the commit and the tree that are built."""

    ref: str
    commit: Commit
    tree: Commit


class LockedBackport(Model):
    """An upstream commit applied by reference, and the hash of its diff."""

    tree: Commit
    diff: Sha256


class Lock(Model):
    """sources.lock.yaml, written by `invoke lock`."""

    sources: Mapping[Release, Mapping[str, LockedSource]] = {}
    backports: Mapping[str, Mapping[Commit, LockedBackport]] = {}
    bases: Mapping[str, Mapping[Release, Sha256]] = {}


class PatchRange(Model):
    """The component versions a series entry is meant for."""

    versions: SpecifierText


class PatchesConfig(Model):
    """patches.yaml: where the series lie and which component versions each entry is meant for."""

    directory: str = Field(description="folder of the series, relative to this file")
    ranges: Mapping[str, Mapping[str, PatchRange]]


class Requirements(Model):
    """Requirements files for pip, by the stage that installs them, relative to bases.yaml."""

    toolchain: str
    pyt: str
    runtime: str = Field(description="what the Python models of a model repository import")
    sdk: str


class LocalBase(Model):
    """A base that `invoke base` builds from a Dockerfile of ours."""

    dockerfile: str = Field(description="relative to bases.yaml; has the targets `serving` and `devel`")
    os_image: str = Field(description="the distribution's image it starts from")
    suite: str = Field(description="what debootstrap installs where no registry has that image")
    arguments: Mapping[str, str] = {}


class BaseConfig(Model):
    """An image to build on and to serve from."""

    image: str | None = Field(default=None, description="registry image; {release} is filled in")
    local: LocalBase | None = None
    cuda: VersionText | None = Field(default=None, description="null: the release's own")
    server: VersionText | None = Field(
        default=None, description="true server version; null: the release's own"
    )
    driver: VersionText | None = Field(
        default=None, description="oldest driver for the CUDA in it; null: the release's own"
    )
    releases: tuple[Release, ...] = Field(min_length=1)
    host_compiler: tuple[str, str] = Field(description="C and C++ compiler that this CUDA accepts")
    toolchain_packages: tuple[str, ...] = Field(
        default=(), description="Debian packages of the toolchain stage"
    )
    wheel_libraries: tuple[str, ...] = Field(
        default=(), description="folders of site-packages/nvidia that the pyt tree compiles against"
    )
    requirements: Requirements
    source: str


class BasesConfig(Model):
    """bases.yaml: the images that cells are built on."""

    default: str
    dockerfile: str = Field(
        description="the recipe of all cells, relative to this file; its programs are in steps/ beside it"
    )
    bases: Mapping[str, BaseConfig]


@dataclass(frozen=True)
class Config:
    """All of one buildcfg folder."""

    folder: Path
    matrix: MatrixConfig
    sources: SourcesConfig
    lock: Lock
    patches: PatchesConfig
    bases: BasesConfig
    models: ModelsConfig

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

    @property
    def lock_file(self) -> Path:
        """Path of the machine-written lock."""
        return self.folder / LOCK_FILE


FILES: Mapping[str, type[Model]] = {
    "matrix.yaml": MatrixConfig,
    "sources.yaml": SourcesConfig,
    "patches.yaml": PatchesConfig,
    "bases.yaml": BasesConfig,
    "models.yaml": ModelsConfig,
    LOCK_FILE: Lock,
}


def json_schemas() -> dict[str, str]:
    """Return the JSON Schema of every file in a buildcfg folder, by schema file name, for editors and CI."""
    return {
        f"{Path(name).with_suffix('').name}.schema.json": json.dumps(model.model_json_schema(), indent=2)
        + "\n"
        for name, model in FILES.items()
    }

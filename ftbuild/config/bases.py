"""Schema of bases.yaml: the images that cells are built on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from ftbuild.architecture import DEFAULT, Architecture
from ftbuild.config.debian import DebianPackages, PathPattern
from ftbuild.config.types import (
    FilePath,
    Identifier,
    ImageDigest,
    ImageName,
    Manylinux,
    Model,
    Name,
    Package,
    Program,
    Release,
    SmNumber,
    Source,
    Text,
    VersionText,
)

ImageKind = Literal["runtime", "sdk"]


class Requirements(Model):
    """Requirements files for pip, by the stage that installs them, relative to bases.yaml."""

    toolchain: FilePath = Field(description="what configures and compiles")
    pyt: FilePath = Field(description="what the pyt tree compiles against: torch")
    runtime: FilePath = Field(description="what the Python models of a model repository import")
    sdk: FilePath = Field(description="what converters and examples import")


class LocalBase(Model):
    """A base that `invoke base` builds from a Dockerfile of ours."""

    dockerfile: FilePath = Field(description="relative to bases.yaml; has the targets `serving` and `devel`")
    debian: DebianPackages = Field(description="the system that it consists of")
    requirements: FilePath | None = Field(
        default=None, description="wheels that its Dockerfile unpacks, relative to bases.yaml"
    )
    compiles_server: bool = Field(
        default=False, description="its Dockerfile compiles the server of each release from its sources"
    )
    os_image: ImageDigest | None = Field(
        default=None,
        description="an image of the locked system by digest, for machines where debootstrap cannot make it",
    )
    arguments: Mapping[Identifier, Text] = Field(
        default={}, description="build arguments of its Dockerfile (ARG)"
    )


class BaseConfig(Model):
    """An image to build on and to serve from."""

    image: ImageName | None = Field(default=None, description="registry image; {release} is filled in")
    local: LocalBase | None = Field(default=None, description="what builds it here; null: `image` is pulled")
    architecture: Architecture = Field(
        default=DEFAULT, description="of the processors that its images run on"
    )
    cuda: VersionText | None = Field(default=None, description="null: the release's own")
    server: VersionText | None = Field(
        default=None, description="true server version; null: the release's own"
    )
    driver: VersionText | None = Field(
        default=None, description="oldest driver for the CUDA in it; null: the release's own"
    )
    releases: tuple[Release, ...] = Field(min_length=1, description="whose cells it is built for")
    host_compiler: tuple[Program, Program] = Field(description="C and C++ compiler that this CUDA accepts")
    toolchain_packages: tuple[Package, ...] = Field(
        default=(), description="Debian packages of the toolchain stage"
    )
    wheel_libraries: tuple[Identifier, ...] = Field(
        default=(), description="folders of site-packages/nvidia that the pyt tree compiles against"
    )
    sdk_without: tuple[PathPattern, ...] = Field(
        default=(),
        description="files and folders of Python packages that the SDK image does without (find -path); "
        "each must be there",
    )
    max_megabytes: Mapping[Release, Mapping[ImageKind, Annotated[int, Field(gt=0)]]] = Field(
        default={},
        description="what the images of a cell of one SM may weigh, unpacked, in MB (10^6 bytes); verify "
        "compares it",
    )
    cell_gib: Annotated[int, Field(gt=0, description="free disk that building a cell needs, in GiB")] = 12
    base_gib: Annotated[int, Field(gt=0, description="free disk that building the base needs, in GiB")] = 16
    python: VersionText = Field(default="3.11", description="its Python, for which wheels are locked")
    manylinux: Manylinux = Field(
        default="2.17", description="newest manylinux tag, by its glibc, that the base and its pip accept"
    )
    requirements: Requirements = Field(description="Python packages by stage")
    openai: FilePath | None = Field(
        default=None, description="requirements of the OpenAI front on this base; no part of any cell"
    )
    built: Mapping[Release, tuple[SmNumber, ...]] = Field(
        default={},
        description="SMs for which images of a release were built from the real sources and verified",
    )
    tried: Mapping[Release, Mapping[SmNumber, Text]] = Field(
        default={}, description="the GPU on which images of a release passed the smoke test; others never ran"
    )
    source: Source

    def requirements_by_role(self) -> dict[str, str]:
        """Return the requirements files by the stage that installs them; `server` is that of a local base."""
        own = {"server": self.local.requirements} if self.local and self.local.requirements else {}
        return {**self.requirements.model_dump(), **own}

    def all_requirements(self) -> tuple[str, ...]:
        """Return every requirements file that is locked for its Python."""
        return (*self.requirements_by_role().values(), *([self.openai] if self.openai else []))


class LaterImage(Model):
    """An image of NVIDIA's that nothing is built on."""

    server: VersionText = Field(description="version of Triton Inference Server in it")
    cublas: int = Field(strict=True, ge=11, description="major version of its libcublas.so")
    line: int = Field(strict=True, ge=1, description="line of upstream's build.py that says so")


class NotBuilt(Model):
    """Later images of a registry as data, to see on which of them our libraries could be layered."""

    image: ImageName = Field(description="registry image; {release} is filled in")
    libraries: Name = Field(description="base whose CUDA compiles the libraries")
    source: Source
    images: Mapping[Release, LaterImage] = Field(description="by release")


class BasesConfig(Model):
    """bases.yaml: the images that cells are built on."""

    dockerfile: FilePath = Field(
        description="the recipe of all cells, relative to this file; its programs are in steps/ beside it"
    )
    bases: Mapping[Name, BaseConfig] = Field(min_length=1, description="by the name for `--base`")
    not_built: NotBuilt | None = Field(default=None, description="null: no later images are compared")

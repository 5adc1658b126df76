"""Answers of registries as validated data: manifests, image configurations, tag lists, tokens, errors.

distribution-spec v1.1 and image-spec v1.1. Fields that nothing here needs are not looked at.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ftbuild.registry.malformed import Malformed
from ftbuild.text import bounded_json, terminal

# image-spec v1.1, descriptor.md, "Registered Algorithms".
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
MAX_SIZE = 1 << 50

Digest = Annotated[str, StringConstraints(pattern=rf"^(?:{DIGEST.pattern})$", max_length=140)]
MediaType = Annotated[str, StringConstraints(pattern=rf"^(?:{_MEDIA_TYPE.pattern})?$", max_length=255)]
Size = Annotated[int, Field(ge=0, le=MAX_SIZE)]
Annotations = Annotated[dict[str, str], Field(max_length=10_000, fail_fast=True)]
# A page of tags has nothing else, and a registry may put all tags of a repository on one.
MAX_VALUES = 500_000


class _Answer(BaseModel):
    """A JSON object with at least these fields, each of exactly this type."""

    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True)


class Part(_Answer):
    """A descriptor: what a manifest refers to."""

    media_type: MediaType = Field("", alias="mediaType")
    digest: Digest
    size: Size
    annotations: Annotations | None = None
    platform: Annotated[dict[str, Any], Field(max_length=100, fail_fast=True)] | None = None


Parts = Annotated[list[Part], Field(fail_fast=True, max_length=10_000)]


class Content(_Answer):
    """The manifest of an image, which has a `config`, or an index, which has `manifests`.

    One that is both would be another image for each reader (CVE-2021-41190).
    """

    config: Part | None = None
    layers: Parts | None = None
    manifests: Parts | None = None
    annotations: Annotations | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.manifests is not None and (self.config or self.layers is not None):
            raise ValueError("it is an image and an index at once")
        return self


class Settings(_Answer):
    """The part of an image's configuration that a container runs with."""

    labels: Annotations | None = Field(None, alias="Labels")


class RootFilesystem(_Answer):
    """The layers of an image as its configuration names them: by the digests of what they unpack to."""

    diff_ids: Annotated[list[Digest], Field(fail_fast=True, max_length=1000)] = []


class ImageConfig(_Answer):
    """The configuration of an image, as far as publishing needs it."""

    architecture: str
    os: str
    os_version: str | None = Field(None, alias="os.version")
    os_features: Annotated[list[str], Field(fail_fast=True, max_length=100)] | None = Field(
        None, alias="os.features"
    )
    variant: str | None = None
    config: Settings | None = None
    rootfs: RootFilesystem | None = None

    @property
    def platform(self) -> dict[str, Any]:
        """Return the platform as an index names it (image-spec v1.1, image-index.md)."""
        fields = self.model_dump(by_alias=True, exclude={"config", "rootfs"})
        return {key: value for key, value in fields.items() if value}

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the image."""
        return (self.config.labels if self.config else None) or {}


class TagList(_Answer):
    """One page of the tags of a repository."""

    tags: Annotated[list[str], Field(max_length=MAX_VALUES, fail_fast=True)] | None = None


class Token(_Answer):
    """The answer of a token server: one of the two is a bearer token, printable since it is a header's."""

    token: Annotated[str, StringConstraints(pattern=r"^[!-~]*$", max_length=65_536)] | None = None
    access_token: Annotated[str, StringConstraints(pattern=r"^[!-~]*$", max_length=65_536)] | None = None


class Reason(_Answer):
    """One entry of an error's answer."""

    code: str | None = None
    message: str | None = None


class Errors(_Answer):
    """The body of a refusal (distribution-spec v1.1, "Error Codes")."""

    errors: Annotated[list[Reason], Field(fail_fast=True, max_length=1000)]


A = TypeVar("A", bound=_Answer)


def read(kind: type[A], raw: bytes, where: str) -> A:
    """Return an answer as data; `Malformed` unless it is of that kind."""
    try:
        return bounded_json.model(kind, raw, MAX_VALUES)
    except bounded_json.Unfit as wrong:
        raise Malformed(
            "the registry did not send JSON of the expected form",
            where=terminal.printable(f"{where}: {wrong}"),
        ) from None


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header; `Malformed` if there is none."""
    name = header.partition(";")[0].strip()
    if not _MEDIA_TYPE.fullmatch(name):
        raise Malformed("a registry returned an invalid media type", where=_shown(header))
    return name


def digest(header: str) -> str:
    """Return the digest in a header; `Malformed` for anything else."""
    if not DIGEST.fullmatch(header):
        raise Malformed("a registry returned an invalid digest", where=_shown(header))
    return header


def length(header: str) -> int:
    """Return the number in a Content-Length header; `Malformed` for anything else."""
    if not re.fullmatch(r"[0-9]{1,15}", header, re.ASCII):
        raise Malformed("a registry returned an invalid size", where=_shown(header))
    return int(header)


def _shown(header: str) -> str:
    return terminal.printable(header[:200]) or "an empty header"

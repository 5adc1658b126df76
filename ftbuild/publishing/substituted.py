"""The record of images that were taken from a registry in place of a build: `substituted.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import PublishError
from ftbuild.host.json_file import JsonFile
from ftbuild.registry.answers import Digest


@dataclass(frozen=True)
class Substituted:
    """An image that was taken in place of a build: `name` is `repository@digest`, `image` its local id."""

    name: str
    digest: Digest
    image: str
    signer: str


# By product; none for images that were built here.
RECORD: JsonFile[dict[str, Substituted]] = JsonFile(
    "substituted.json",
    TypeAdapter(Annotated[dict[str, Substituted], Field(max_length=10, fail_fast=True)]),
    PublishError,
    "the record of what was taken from a registry is damaged",
    "invoke build --rebuild builds the images here",
)


def read(folder: Path) -> dict[str, Substituted]:
    """Return what the images in a cell's folder were taken from; PublishError for a damaged record."""
    return RECORD.read(folder) or {}


def sentences(taken: Mapping[str, Substituted]) -> Iterator[str]:
    """Yield for each image where it is from and who vouches for it."""
    for product, each in taken.items():
        yield f"the {product} image is {each.name}, signed with {each.signer}"

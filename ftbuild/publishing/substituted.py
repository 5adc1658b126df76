"""The record of images that were taken from a registry in place of a build: `substituted.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import FtbuildError, PublishError
from ftbuild.host import files, reading
from ftbuild.registry.answers import Digest
from ftbuild.text import bounded_json

RECORD = "substituted.json"


@dataclass(frozen=True)
class Substituted:
    """An image that was taken in place of a build: `name` is `repository@digest`, `image` its local id."""

    name: str
    digest: Digest
    image: str
    signer: str


_RECORD: TypeAdapter[dict[str, Substituted]] = TypeAdapter(
    Annotated[dict[str, Substituted], Field(max_length=10)]
)


def write(folder: Path, taken: Mapping[str, Substituted]) -> None:
    """Write what was taken into the cell's folder."""
    record = {product: asdict(each) for product, each in taken.items()}
    files.write_atomic(folder / RECORD, json.dumps(record, indent=2) + "\n")


def read(folder: Path) -> dict[str, Substituted]:
    """Return what the images in a cell's folder were taken from, nothing for those that were built here."""
    file = folder / RECORD
    if not file.exists():
        return {}
    try:
        return bounded_json.adapted(_RECORD, reading.read_bytes(file))
    except (FtbuildError, bounded_json.Unfit) as damaged:
        raise PublishError(
            "the record of what was taken from a registry is damaged",
            where=str(file),
            hint="invoke build --rebuild builds the images here",
        ) from damaged


def discard(folder: Path) -> None:
    """Forget what was taken, since the images were built here."""
    (folder / RECORD).unlink(missing_ok=True)


def sentences(taken: Mapping[str, Substituted]) -> Iterator[str]:
    """Yield for each image where it is from and who vouches for it."""
    for product, each in taken.items():
        yield f"the {product} image is {each.name}, signed with {each.signer}"

"""Inventories of images, stored in a cell's folder: the publishing machine need not have the image."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from ftbuild.engine import daemon
from ftbuild.engine.container import ContainerError
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import FtbuildError, PublishError
from ftbuild.host import reading
from ftbuild.publishing.attest import inventory
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.text import bounded_json
from ftbuild.text.units import MIB

if TYPE_CHECKING:
    import docker


# That of an SDK image has 300 KB: some 600 packages of six fields.
MAX_BYTES, MAX_VALUES = 16 * MIB, 500_000


@dataclass(frozen=True)
class StoredInventory:
    """An inventory and the id of the image that it was read from."""

    image: str
    inventory: Inventory


_STORED: TypeAdapter[StoredInventory] = TypeAdapter(StoredInventory)


def read(folder: Path, product: str, ids: Collection[str]) -> Inventory | None:
    """Return the inventory in a cell's folder if it is about the image with these ids, else None."""
    try:
        content = reading.read_bytes(_file(folder, product), max_bytes=MAX_BYTES)
        found = bounded_json.adapted(_STORED, content, MAX_VALUES)
    except (FtbuildError, bounded_json.Unfit):
        return None
    return found.inventory if found.image in ids else None


def take(
    client: docker.DockerClient, folder: Path, product: str, name: str, ids: Collection[str]
) -> Inventory:
    """Read the inventory of a local image, and store it in a cell's folder.

    Raises PublishError if the image is not one of `ids`, or its packages cannot be listed.
    """
    try:
        image = daemon.require_image(client, name)
    except ImageNotBuilt as absent:
        raise absent.converted(PublishError) from absent
    if image not in ids:
        raise PublishError(
            f"the inventory of {name} cannot be taken: the local image is not the staged one",
            where=str(_file(folder, product)),
            hint="invoke registry.stage stores it on the machine that builds: copy its work folder here",
        )
    try:
        found = StoredInventory(image, inventory.read(client, image))
    except ContainerError as failed:
        raise failed.converted(PublishError) from failed
    folder.mkdir(parents=True, exist_ok=True)
    _file(folder, product).write_bytes(_STORED.dump_json(found, indent=1))
    return found.inventory


def _file(folder: Path, product: str) -> Path:
    return folder / f"inventory-{product}.json"

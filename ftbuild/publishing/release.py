"""What goes into a registry beside an image: SBOM, provenance, and the index that holds all together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from ftbuild.attest import inventory as inventories
from ftbuild.attest import manifests, provenance, purl, sbom
from ftbuild.attest.annotations import of_index
from ftbuild.attest.inventory import Inventory
from ftbuild.attest.upload import upload
from ftbuild.bake import METADATA, target_name
from ftbuild.plan import LABELS, Plan
from ftbuild.registry.client import Manifest, Repository
from ftbuild.verdict import Gate

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Listed:
    """An inventory and the id of the image that it was read from."""

    image: str
    inventory: Inventory


_LISTED: TypeAdapter[Listed] = TypeAdapter(Listed)


def inventory(client: Callable[[], docker.DockerClient], folder: Path, product: str, image: str) -> Inventory:
    """What lies in the image of that id: noted in `folder`, else read from it and noted."""
    file = folder / f"inventory-{product}.json"
    try:
        listed = _LISTED.validate_json(file.read_bytes())
        if listed.image == image:
            return listed.inventory
    except (OSError, ValidationError):
        pass
    listed = Listed(image, inventories.read(client(), image))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_LISTED.dump_json(listed, indent=1))
    return listed.inventory


def attest(
    repository: Repository,
    plan: Plan,
    product: str,
    image: Manifest,
    inventory: Inventory,
    folder: Path,
    name: str,
    tag: str,
    passed: Sequence[Gate],
) -> str:
    """Put SBOM and provenance of an image beside it, and return the digest of the index over all three.

    `name` and `tag` are what users will pull by, `folder` holds the records of the gates that `passed`.
    The same image and records give the same digest.
    """
    config = repository.config(image)
    labels = _ours(config.get("config", {}).get("Labels") or {})
    digest = image.descriptor.digest
    created = labels.get("org.opencontainers.image.created")
    bill = sbom.document(plan, product, inventory, name, digest, created)
    run = provenance.Run(records={gate.record: (folder / gate.record).read_bytes() for gate in passed})
    predicates = [
        (sbom.PREDICATE, bill),
        (provenance.PREDICATE, provenance.predicate(plan, product, run)),
        *_by_the_builder(folder, plan, product),
    ]
    subject = purl.image(name, digest, tag)
    statements = [manifests.statement(subject, digest, kind, content) for kind, content in predicates]
    said = {**labels, f"{LABELS}.gates": ",".join(gate.name for gate in passed)}
    platform = {key: config[key] for key in ("architecture", "os")}
    return upload(repository, image.descriptor, platform, statements, of_index(plan, product, **said)).digest


def _ours(labels: Mapping[str, str]) -> dict[str, str]:
    """What the image says of itself, which an older checkout may have said; not what its base said."""
    return {key: value for key, value in labels.items() if key.startswith((LABELS, "org.opencontainers."))}


def _by_the_builder(folder: Path, plan: Plan, product: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """BuildKit's own provenance, where the builder noted it (containerd's image store, later buildx)."""
    try:
        metadata = json.loads((folder / METADATA).read_text())
    except (OSError, ValueError):
        return
    if found := provenance.from_buildkit(metadata, target_name(plan, product)):
        yield found

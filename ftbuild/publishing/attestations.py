"""What goes into a registry beside an image: SBOM, provenance, and the index that holds all together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ftbuild.build.bake import METADATA, target_name
from ftbuild.errors import PublishError
from ftbuild.gates.report import Gate
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import gates, remote_image
from ftbuild.publishing.attest import manifests, provenance, purl, sbom
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.client import Repository

GATES = f"{LABELS}.gates"


def attest(
    repository: Repository,
    plan: Plan,
    product: str,
    image: RemoteImage,
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
    config = repository.config(image.image)
    labels = _ours(config.get("config", {}).get("Labels") or {})
    digest = image.image.descriptor.digest
    created = labels.get("org.opencontainers.image.created")
    bill = sbom.document(plan, product, inventory, name, digest, created)
    run = provenance.Run(records={gate.record: (folder / gate.record).read_bytes() for gate in passed})
    predicates = [
        (sbom.PREDICATE, bill),
        (provenance.PREDICATE, provenance.predicate(plan, product, run)),
    ]
    subject = purl.image(name, digest, tag)
    statements = [manifests.statement(subject, digest, kind, content) for kind, content in predicates]
    beside = list(remote_image.statements(repository, image))
    statements += beside or _by_the_builder(folder, plan, product, subject, digest)
    said = {**labels, GATES: _names(passed)}
    platform = {key: config[key] for key in ("architecture", "os")}
    described = of_index(plan, product, **said)
    return upload(repository, image.image.descriptor, platform, statements, described).digest


def require_gates(repository: Repository, digest: str) -> None:
    """PublishError unless the index of that digest says that its image passed all gates.

    Whoever may push to the registry may set an immutable tag; a moving one follows only what `attest` made.
    """
    index = repository.manifest(digest)
    said = (index.content.get("annotations") or {}).get(GATES) if index else None
    if said != _names(gates.ALL):
        raise PublishError(
            f"an immutable tag means an image that has not passed all gates, but {said or 'none'}",
            where=f"{repository.name}@{digest}",
            hint="find out who pushed it; delete the tag in the registry, then publish again",
        )


def _names(passed: Sequence[Gate]) -> str:
    return ",".join(gate.name for gate in passed)


def _ours(labels: Mapping[str, str]) -> dict[str, str]:
    """What the image says of itself, which an older checkout may have said; not what its base said."""
    return {key: value for key, value in labels.items() if key.startswith((LABELS, "org.opencontainers."))}


def _by_the_builder(folder: Path, plan: Plan, product: str, subject: str, digest: str) -> list[bytes]:
    """BuildKit's own provenance, where it lies beside the build only (buildx 0.14 and later)."""
    try:
        metadata = json.loads((folder / METADATA).read_text())
    except (OSError, ValueError):
        return []
    found = provenance.from_buildkit(metadata, target_name(plan, product))
    return [manifests.statement(subject, digest, *found)] if found else []

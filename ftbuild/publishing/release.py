"""What goes into a registry beside an image: SBOM, provenance, and the index that holds all together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ftbuild.attest import manifests, provenance, purl, sbom
from ftbuild.attest.annotations import of_index
from ftbuild.attest.inventory import Inventory
from ftbuild.attest.upload import upload
from ftbuild.bake import METADATA, target_name
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import pushed
from ftbuild.publishing.pushed import Pushed
from ftbuild.registry.client import Repository
from ftbuild.verdict import Gate


def attest(
    repository: Repository,
    plan: Plan,
    product: str,
    image: Pushed,
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
    beside = list(pushed.statements(repository, image))
    statements += beside or _by_the_builder(folder, plan, product, subject, digest)
    said = {**labels, f"{LABELS}.gates": ",".join(gate.name for gate in passed)}
    platform = {key: config[key] for key in ("architecture", "os")}
    described = of_index(plan, product, **said)
    return upload(repository, image.image.descriptor, platform, statements, described).digest


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

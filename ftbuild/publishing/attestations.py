"""Attestations of a published image: SBOM, provenance, and the index that holds all three."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ftbuild.publishing.session import PublishSession
from ftbuild.registry.client import Repository

GATES = f"{LABELS}.gates"


@dataclass(frozen=True)
class Candidate:
    """An image in the staging repository that is about to get its immutable `tag`.

    `local` is its name in the engine, `passed` the gates whose records are about it.
    """

    plan: Plan
    product: str
    image: RemoteImage
    local: str
    tag: str
    passed: Sequence[Gate]

    @property
    def digest(self) -> str:
        """Return the digest of the image's manifest."""
        return self.image.image.descriptor.digest


def attest(session: PublishSession, candidate: Candidate, inventory: Inventory) -> str:
    """Store SBOM and provenance beside an image, and return the digest of the index over all three.

    The same image and gate records give the same digest.
    """
    repository, name, folder = session.staging, session.repository.name, session.folder(candidate.plan)
    plan, product, digest = candidate.plan, candidate.product, candidate.digest
    config = repository.config(candidate.image.image)
    labels = _own_labels(config.get("config", {}).get("Labels") or {})
    created = labels.get("org.opencontainers.image.created")
    bill = sbom.document(plan, product, inventory, name, digest, created)
    records = {gate.record: (folder / gate.record).read_bytes() for gate in candidate.passed}
    predicates = [
        (sbom.PREDICATE, bill),
        (provenance.PREDICATE, provenance.predicate(plan, product, provenance.Run(records=records))),
    ]
    subject = purl.image(name, digest, candidate.tag)
    statements = [manifests.statement(subject, digest, kind, content) for kind, content in predicates]
    pushed = list(remote_image.statements(repository, candidate.image))
    statements += pushed or _builder_statements(folder, plan, product, subject, digest)
    annotations = of_index(plan, product, **labels, **{GATES: _names(candidate.passed)})
    platform = {key: config[key] for key in ("architecture", "os")}
    return upload(repository, candidate.image.image.descriptor, platform, statements, annotations).digest


def require_gates(repository: Repository, digest: str) -> None:
    """Raise PublishError unless the index of this digest names all gates as passed.

    Any account that may push can set an immutable tag; a moving one follows only what `attest` made.
    """
    index = repository.manifest(digest)
    passed = (index.content.get("annotations") or {}).get(GATES) if index else None
    if passed != _names(gates.ALL):
        raise PublishError(
            f"the image behind an immutable tag has not passed all gates, but {passed or 'none'}",
            where=f"{repository.name}@{digest}",
            hint="find out who pushed it; delete the tag in the registry, then publish again",
        )


def _names(passed: Sequence[Gate]) -> str:
    return ",".join(gate.name for gate in passed)


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the image's own labels, perhaps written by an older checkout, without those of its base."""
    return {key: value for key, value in labels.items() if key.startswith((LABELS, "org.opencontainers."))}


def _builder_statements(folder: Path, plan: Plan, product: str, subject: str, digest: str) -> list[bytes]:
    """Return BuildKit's own provenance if only the work folder has it (buildx 0.14 and later)."""
    try:
        metadata = json.loads((folder / METADATA).read_text())
    except (OSError, ValueError):
        return []
    found = provenance.from_buildkit(metadata, target_name(plan, product))
    return [manifests.statement(subject, digest, *found)] if found else []

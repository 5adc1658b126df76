"""Attestations of a published image: SBOM, known holes, provenance, and the index that holds all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftbuild.build.bake import METADATA
from ftbuild.build.definitions import CACHE_LABEL, target_name
from ftbuild.gates import records
from ftbuild.gates.report import Gate
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import referrers, remote_image, secrets, substituted, trusted_objects
from ftbuild.publishing.attest import manifests, provenance, purl, sbom, vex
from ftbuild.publishing.attest.annotations import is_own, of_index
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import PublishSession
from ftbuild.registry.client import Descriptor
from ftbuild.text import bounded_json

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


@dataclass(frozen=True)
class Attached:
    """What goes beside an image: statements, annotations of the index, and the image's platform."""

    image: Descriptor
    platform: Mapping[str, str]
    statements: Sequence[bytes]
    annotations: Mapping[str, str]
    records: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """The digest of the index over all of it."""
        _, index = manifests.attached(self.image, self.platform, self.statements, self.annotations)
        return index.descriptor.digest


def attest(session: PublishSession, candidate: Candidate, inventory: Inventory) -> str:
    """Store what `make` returns; return the digest of the index, and note it in the cell's folder."""
    made = make(session, candidate, inventory)
    index = upload(session.staging, made.image, made.platform, made.statements, made.annotations)
    created = made.annotations.get(referrers.CREATED, "")
    referrers.attach(session.repository, index, referrers.of(made.statements, made.records, created))
    session.note(candidate.plan, session.repository, candidate.tag, index.digest)
    return index.digest


def make(session: PublishSession, candidate: Candidate, inventory: Inventory) -> Attached:
    """Return SBOM, provenance and known holes of an image, and what its builder stated.

    The same image, gate records and known holes give the same digest. Raises PublishError if a statement
    holds a password.
    """
    repository, name, folder = session.staging, session.repository.name, session.folder(candidate.plan)
    plan, product, digest = candidate.plan, candidate.product, candidate.digest
    config = repository.config(candidate.image.image)
    # Perhaps written by an older checkout.
    labels = {key: value for key, value in config.labels.items() if is_own(key)}
    created = labels.get("org.opencontainers.image.created")
    bill = sbom.document(plan, product, inventory, name, digest, created)
    passed = {gate.record: (folder / gate.record).read_bytes() for gate in candidate.passed}
    taken = substituted.read(folder).get(product)
    run = provenance.Run(
        records=passed,
        compiler_cache=labels.get(CACHE_LABEL, ""),
        substituted=taken.name if taken and taken.image in candidate.image.ids else "",
        objects=trusted_objects.taken(folder, labels),
    )
    predicates = [
        (sbom.PREDICATE, bill),
        (provenance.PREDICATE, provenance.predicate(plan, product, run)),
    ]
    if known := vex.document(plan, name, digest, sbom.package_urls(bill)):
        predicates.append((vex.PREDICATE, known))
    subject = purl.image(name, digest, candidate.tag)
    statements = [manifests.statement(subject, digest, kind, content) for kind, content in predicates]
    stated = _pushed_statements(session, candidate)
    statements += stated or builder_statements(folder, plan, product, subject, digest)
    for text in (*statements, *passed.values()):
        secrets.require_none(text, f"the attestations of {plan.tag(product)}")
    gates = ",".join(gate.name for gate in candidate.passed)
    annotations = of_index(plan, product, **labels, **{GATES: gates})
    platform = {"architecture": config.architecture, "os": config.os}
    by_gate = {gate.name: passed[gate.record] for gate in candidate.passed}
    return Attached(candidate.image.image.descriptor, platform, statements, annotations, by_gate)


def _pushed_statements(session: PublishSession, candidate: Candidate) -> list[bytes]:
    """Return what the builder stated in the index that it pushed.

    None of an index that may be of somebody else, and nothing but provenance of this very image.
    """
    plan, index = candidate.plan, candidate.image.tagged.descriptor.digest
    is_ours = session.has_pushed(plan, session.staging, index) or _is_tested(session, candidate, index)
    found = remote_image.statements(session.staging, candidate.image) if is_ours else ()
    return [text for text in found if provenance.is_about(text, candidate.digest)]


def _is_tested(session: PublishSession, candidate: Candidate, index: str) -> bool:
    """Return whether the gates' records name this index: the id of an image for containerd's store."""
    found = [records.read(gate, session.folder(candidate.plan)) for gate in candidate.passed]
    return any(record is not None and record.ids.get(candidate.product) == index for record in found)


def builder_statements(folder: Path, plan: Plan, product: str, subject: str, digest: str) -> list[bytes]:
    """Return BuildKit's own provenance if only the work folder has it (buildx 0.14 and later)."""
    try:
        metadata = bounded_json.loads((folder / METADATA).read_bytes())
    except (OSError, ValueError):
        return []
    found = provenance.from_buildkit(metadata, target_name(plan, product))
    return [manifests.statement(subject, digest, *found)] if found else []

"""What is said of a published image, as artifacts whose subject is its index (image-spec v1.1, manifest.md).

They are found without knowing how BuildKit stores attestations, by `oras discover` and by scanners. They
repeat what the signed index holds, and add the records of the gates, which the provenance in it names by
their hashes. So they need no signature of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ftbuild.publishing.attest import manifests, sbom
from ftbuild.publishing.attest.manifests import Blob
from ftbuild.registry.client import Descriptor, Repository
from ftbuild.text import bounded_json

GATE = "application/vnd.ftbuild.gate.v1+json"
GATE_NAME = "io.ftbuild.gate"
# image-spec v1.1, manifest.md, "Guidelines for Artifact Usage": no configuration.
EMPTY = Blob("application/vnd.oci.empty.v1+json", b"{}")
# By which scanners look for an SPDX document (IANA, Media Types).
SPDX = "application/spdx+json"
CREATED = "org.opencontainers.image.created"


@dataclass(frozen=True)
class Referrer:
    """An artifact about an image: its type, its one blob, and annotations by which it is told from others."""

    kind: str
    content: Blob
    annotations: Mapping[str, str]

    def manifest(self, subject: Descriptor) -> Blob:
        """Return its manifest, about the manifest or index `subject`."""
        content = {
            "schemaVersion": 2,
            "mediaType": manifests.MANIFEST,
            "artifactType": self.kind,
            "config": EMPTY.descriptor.as_dict(),
            "layers": [self.content.descriptor.as_dict()],
            "subject": subject.as_dict(),
            "annotations": dict(self.annotations),
        }
        return Blob(manifests.MANIFEST, manifests.canonical(content))


def of(statements: Sequence[bytes], records: Mapping[str, bytes], created: str) -> Iterator[Referrer]:
    """Yield the artifacts for in-toto statements and for records of gates, by the name of the gate.

    An SBOM is the document alone, as scanners read it; the same input gives the same bytes.
    """
    common = {CREATED: created} if created else {}
    for text in statements:
        said = bounded_json.loads(text)
        about = {**common, manifests.PREDICATE_TYPE: said["predicateType"]}
        if said["predicateType"] == sbom.PREDICATE:
            yield Referrer(SPDX, Blob(SPDX, manifests.canonical(said["predicate"])), about)
        yield Referrer(manifests.LAYER, Blob(manifests.LAYER, text), about)
    for gate, record in records.items():
        yield Referrer(GATE, Blob(GATE, record), {**common, GATE_NAME: gate})


def attach(repository: Repository, subject: Descriptor, wanted: Iterator[Referrer]) -> None:
    """Store artifacts about `subject`, where readers of referrers find them; repeating it changes nothing.

    Raises PublishError if the registry refuses.
    """
    there = {part.digest for part in repository.referrers(subject.digest)}
    for referrer in wanted:
        made = referrer.manifest(subject)
        if made.descriptor.digest not in there:
            for blob in (EMPTY, referrer.content):
                repository.put_blob(blob.data, blob.media_type)
            repository.put_referrer(made.data, subject.digest, referrer.kind, referrer.annotations)

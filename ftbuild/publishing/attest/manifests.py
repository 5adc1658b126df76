"""In-toto statements, the attestation manifest that holds them, and the index that binds it to an image.

BuildKit's storage format (moby/buildkit docs/attestations/attestation-storage.md), which buildx reads.
All pure: the same values give the same bytes, hence the same digests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftbuild.registry.client import Descriptor, digest_of

STATEMENT = "https://in-toto.io/Statement/v1"
LAYER = "application/vnd.in-toto+json"
PREDICATE_TYPE = "in-toto.io/predicate-type"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# Not a platform of any engine, so that none pulls or runs the attestations.
NO_PLATFORM = {"architecture": "unknown", "os": "unknown"}
_PLATFORM = ("architecture", "os", "os.version", "os.features", "variant")


@dataclass(frozen=True)
class Blob:
    """Bytes for a registry: a manifest, or what one refers to."""

    media_type: str
    data: bytes

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor by which a manifest refers to it."""
        return Descriptor(self.media_type, digest_of(self.data), len(self.data))


@dataclass(frozen=True)
class Attestation:
    """A manifest, and the blobs that it refers to."""

    manifest: Blob
    blobs: tuple[Blob, ...]


def statement(subject_name: str, digest: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Return a statement about the manifest `digest` (in-toto attestation spec v1, statement.md)."""
    algorithm, _, value = digest.partition(":")
    return canonical(
        {
            "_type": STATEMENT,
            "subject": [{"name": subject_name, "digest": {algorithm: value}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def attestation(statements: Sequence[bytes]) -> Attestation:
    """Return the manifest over statements, in their order: of several of a kind, buildx shows the first.

    Its config is an empty image's, since not every registry takes another kind.
    """
    layers = [Blob(LAYER, text) for text in statements]
    digests = [layer.descriptor.digest for layer in layers]
    rootfs = {"type": "layers", "diff_ids": digests}
    config = Blob(CONFIG, canonical({**NO_PLATFORM, "config": {}, "rootfs": rootfs}))
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor.as_dict(),
        "layers": [_layer(layer) for layer in layers],
    }
    return Attestation(Blob(MANIFEST, canonical(content)), (config, *layers))


def index(
    image: Descriptor,
    platform: Mapping[str, Any],
    attached: Descriptor,
    annotations: Mapping[str, str],
) -> Blob:
    """Return the index over an image's manifest and its attestation's (image-spec v1.1, image-index.md).

    `platform` may be the image's whole configuration, of which only the keys of its platform are taken.
    """
    reference = {
        "vnd.docker.reference.type": "attestation-manifest",
        "vnd.docker.reference.digest": image.digest,
    }
    known = {key: platform[key] for key in _PLATFORM if platform.get(key)}
    content = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {**image.as_dict(), "platform": known},
            {**attached.as_dict(), "platform": NO_PLATFORM, "annotations": reference},
        ],
        "annotations": dict(annotations),
    }
    return Blob(INDEX, canonical(content))


def attached(
    image: Descriptor,
    platform: Mapping[str, Any],
    statements: Sequence[bytes],
    annotations: Mapping[str, str],
) -> tuple[Attestation, Blob]:
    """Return the attestation over statements, and the index over it and the image; see `index`."""
    made = attestation(statements)
    return made, index(image, platform, made.manifest.descriptor, annotations)


def canonical(content: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _layer(blob: Blob) -> dict[str, Any]:
    predicate_type = json.loads(blob.data)["predicateType"]
    return {**blob.descriptor.as_dict(), "annotations": {PREDICATE_TYPE: predicate_type}}

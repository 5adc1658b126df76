"""Images in a registry, as engines push them.

Docker Engine with its own image store pushes an image manifest, and identifies the image by the digest of its
configuration. With containerd's store, the default of later engines, it pushes an index that also holds
BuildKit's attestations, and identifies the image by its digest (docs.docker.com/engine/storage/containerd).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ftbuild.errors import PublishError
from ftbuild.registry.client import Manifest, Repository

_OF = "vnd.docker.reference.digest"  # moby/buildkit docs/attestations/attestation-storage.md


@dataclass(frozen=True)
class RemoteImage:
    """An image under a tag: `tagged` is the manifest or index behind the tag, `image` the image manifest."""

    tagged: Manifest
    image: Manifest

    @property
    def ids(self) -> frozenset[str]:
        """Return every id that an engine may give this image, depending on its store."""
        config = self.image.content["config"]["digest"]
        return frozenset({self.tagged.descriptor.digest, self.image.descriptor.digest, str(config)})


def read(repository: Repository, reference: str) -> RemoteImage | None:
    """Return the image behind a tag or digest, or None; PublishError unless it has exactly one platform."""
    tagged = repository.manifest(reference)
    if tagged is None:
        return None
    if "config" in tagged.content:
        return RemoteImage(tagged, tagged)
    digests = [entry["digest"] for entry in _entries(tagged) if not _is_attestation(entry)]
    image = repository.manifest(digests[0]) if len(digests) == 1 else None
    if image is None or "config" not in image.content:
        raise PublishError(
            f"expected an image for one platform, found {len(digests)}",
            where=f"{repository.name}:{reference}",
            hint="delete the tag in the registry, then publish again",
        )
    return RemoteImage(tagged, image)


def statements(repository: Repository, pushed: RemoteImage) -> Iterator[bytes]:
    """Yield the builder's own attestations of the image, as in-toto statements."""
    for entry in _entries(pushed.tagged):
        if (entry.get("annotations") or {}).get(_OF) == pushed.image.descriptor.digest:
            attestation = repository.manifest(entry["digest"])
            for layer in attestation.content["layers"] if attestation else ():
                yield repository.blob(layer["digest"])


def _entries(manifest: Manifest) -> list[dict[str, Any]]:
    return list(manifest.content.get("manifests") or ())


def _is_attestation(entry: dict[str, Any]) -> bool:
    return _OF in (entry.get("annotations") or {})

"""What a registry holds after an engine has pushed an image.

Docker Engine with its own image store pushes an image manifest, and calls the image by the digest of its
configuration. With containerd's store, the default of later engines, it pushes an index that holds BuildKit's
attestations too, and calls the image by the digest of that (docs.docker.com/engine/storage/containerd).
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
    """An image under a tag: `whole` is what the tag means, `image` the manifest of the image in it."""

    whole: Manifest
    image: Manifest

    @property
    def ids(self) -> frozenset[str]:
        """Every name that an engine may have for this image, whatever its store."""
        config = self.image.content["config"]["digest"]
        return frozenset({self.whole.descriptor.digest, self.image.descriptor.digest, str(config)})


def read(repository: Repository, reference: str) -> RemoteImage | None:
    """The image that a tag or digest means, or None; PublishError when it holds none for this platform."""
    whole = repository.manifest(reference)
    if whole is None:
        return None
    if "config" in whole.content:
        return RemoteImage(whole, whole)
    digests = [entry["digest"] for entry in _entries(whole) if not _is_attestation(entry)]
    image = repository.manifest(digests[0]) if len(digests) == 1 else None
    if image is None or "config" not in image.content:
        raise PublishError(
            f"an image for one platform was expected, {len(digests)} are there",
            where=f"{repository.name}:{reference}",
        )
    return RemoteImage(whole, image)


def statements(repository: Repository, pushed: RemoteImage) -> Iterator[bytes]:
    """What the builder itself attests of the image, as in-toto statements."""
    for entry in _entries(pushed.whole):
        if (entry.get("annotations") or {}).get(_OF) == pushed.image.descriptor.digest:
            attestation = repository.manifest(entry["digest"])
            for layer in attestation.content["layers"] if attestation else ():
                yield repository.blob(layer["digest"])


def _entries(manifest: Manifest) -> list[dict[str, Any]]:
    return list(manifest.content.get("manifests") or ())


def _is_attestation(entry: dict[str, Any]) -> bool:
    return _OF in (entry.get("annotations") or {})

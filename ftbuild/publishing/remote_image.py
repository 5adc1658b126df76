"""Images in a registry, as engines push them.

Docker Engine with its own image store pushes an image manifest, and identifies the image by the digest of its
configuration. With containerd's store, the default of later engines, it pushes an index that also holds
BuildKit's attestations, and identifies the image by its digest (docs.docker.com/engine/storage/containerd).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftbuild.errors import PublishError
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Manifest, Repository

OF = "vnd.docker.reference.digest"  # moby/buildkit docs/attestations/attestation-storage.md


@dataclass(frozen=True)
class RemoteImage:
    """An image under a tag: `tagged` is the manifest or index behind the tag, `image` the image manifest."""

    tagged: Manifest
    image: Manifest

    @property
    def ids(self) -> frozenset[str]:
        """Return every id that an engine may give this image, depending on its store."""
        config = self.image.content.config
        manifests = {self.tagged.descriptor.digest, self.image.descriptor.digest}
        return frozenset(manifests | ({config.digest} if config else set()))


def read(repository: Repository, reference: str) -> RemoteImage | None:
    """Return the image behind a tag or digest, or None; PublishError unless it has exactly one platform."""
    tagged = repository.manifest(reference)
    if tagged is None:
        return None
    if tagged.content.config:
        return RemoteImage(tagged, tagged)
    digests = [part.digest for part in parts(tagged) if not is_attestation(part)]
    image = repository.manifest(digests[0]) if len(digests) == 1 else None
    if image is None or image.content.config is None:
        raise PublishError(
            f"expected an image for one platform, found {len(digests)}",
            where=f"{repository.name}:{reference}",
            hint="delete the tag in the registry, then publish again",
        )
    return RemoteImage(tagged, image)


def statements(repository: Repository, pushed: RemoteImage) -> Iterator[bytes]:
    """Yield the attestations of the image, the builder's own or ours, as in-toto statements."""
    for part in parts(pushed.tagged):
        if (part.annotations or {}).get(OF) == pushed.image.descriptor.digest:
            attestation = repository.manifest(part.digest)
            for layer in (attestation.content.layers or ()) if attestation else ():
                yield repository.part(layer)


def parts(manifest: Manifest) -> list[Part]:
    """Return what an index refers to."""
    return list(manifest.content.manifests or ())


def is_attestation(part: Part) -> bool:
    """Return whether an entry of an index says that it is about another one."""
    return OF in (part.annotations or {})

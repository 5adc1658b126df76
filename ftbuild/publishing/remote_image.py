"""Images in a registry, as engines push them, and the form that they have to have.

Docker Engine with its own image store pushes an image manifest, and identifies the image by the digest of its
configuration. With containerd's store, the default of later engines, it pushes an index that also holds
BuildKit's attestations, and identifies the image by its digest (docs.docker.com/engine/storage/containerd).

Whoever may push can put anything under a tag, so everything that is read from a registry as an image comes
through here: an index with a second image in it would be another image for each reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftbuild.errors import PublishError
from ftbuild.publishing.attest.manifests import NO_PLATFORM
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Manifest, Repository
from ftbuild.registry.malformed import Malformed

# moby/buildkit docs/attestations/attestation-storage.md
OF = "vnd.docker.reference.digest"
_TYPE, _ATTESTATION = "vnd.docker.reference.type", "attestation-manifest"
# SBOM, provenance, known holes and what BuildKit writes: no tool makes more of one image.
MAX_STATEMENTS = 20
_HINT = "delete the tag in the registry once you know who set it, then try again"


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
    """Return the image behind a tag or digest, or None.

    Raises PublishError unless there is exactly one image, alone or with its attestations.
    """
    tagged = repository.manifest(reference)
    if tagged is None:
        return None
    where = f"{repository.name}{'@' if ':' in reference else ':'}{reference}"  # no tag has a colon
    if tagged.content.config:
        return RemoteImage(tagged, tagged)
    part = only_image(tagged, where)
    image = repository.manifest(part.digest)
    if image is None or image.content.config is None:
        raise Malformed("an index refers to an image that is none", where=where, hint=_HINT)
    found = image.descriptor
    if (found.size, found.media_type) != (part.size, part.media_type):
        raise Malformed("an index states another size or type of its image", where=where, hint=_HINT)
    return RemoteImage(tagged, image)


def present(repository: Repository, digest: str) -> RemoteImage:
    """Return an image that was there before; see `read`, PublishError if it has vanished."""
    found = read(repository, digest)
    if found is None:
        raise PublishError("an image vanished from the registry", where=f"{repository.name}@{digest}")
    return found


def only_image(index: Manifest, where: str) -> Part:
    """Return the entry of an index that is an image; Malformed if it holds more than it and its attestations.

    Engines choose among the entries by platform, each in its own way, so every other entry has to be one
    that none of them takes for an image.
    """
    images = [part for part in parts(index) if not is_attestation(part)]
    if len(images) != 1:
        raise Malformed(f"expected an image for one platform, found {len(images)}", where=where, hint=_HINT)
    (image,) = images
    others = [part for part in parts(index) if part is not image]
    if len(others) > 1 or not all(_is_about(part, image) for part in others) or not _is_runnable(image):
        raise Malformed(
            "its index holds something else than one image and its attestations", where=where, hint=_HINT
        )
    return image


def statements(repository: Repository, pushed: RemoteImage) -> Iterator[bytes]:
    """Yield the attestations of the image, the builder's own or ours, as in-toto statements."""
    for part in parts(pushed.tagged):
        if (part.annotations or {}).get(OF) == pushed.image.descriptor.digest:
            attestation = repository.manifest(part.digest)
            layers = (attestation.content.layers or []) if attestation else []
            if len(layers) > MAX_STATEMENTS:
                raise Malformed(
                    f"an image has more than {MAX_STATEMENTS} statements",
                    where=f"{repository.name}@{part.digest}",
                    hint=_HINT,
                )
            for layer in layers:
                yield repository.part(layer)


def parts(manifest: Manifest) -> list[Part]:
    """Return what an index refers to."""
    return list(manifest.content.manifests or ())


def is_attestation(part: Part) -> bool:
    """Return whether an entry of an index says that it is about another one."""
    return OF in (part.annotations or {})


def _is_about(part: Part, image: Part) -> bool:
    about = part.annotations or {}
    return (
        about.get(OF) == image.digest != part.digest
        and about.get(_TYPE) == _ATTESTATION
        and part.platform == NO_PLATFORM
    )


def _is_runnable(image: Part) -> bool:
    platform = image.platform or {}
    return all(platform.get(key) not in (None, "", value) for key, value in NO_PLATFORM.items())

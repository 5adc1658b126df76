"""Upload of attestations, in an order that never leaves a manifest without its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftbuild.publishing.attest import manifests
from ftbuild.registry.client import Descriptor, Repository


def upload(
    repository: Repository,
    image: Descriptor,
    platform: Mapping[str, Any],
    statements: Sequence[bytes],
    annotations: Mapping[str, str],
    tags: Iterable[str] = (),
) -> Descriptor:
    """Attach `statements` to an image that `repository` holds, and return the index over both.

    `platform` is as in `manifests.index`; `tags` are set to the index at the very end. Repeating it changes
    nothing. Raises what the repository raises when the registry refuses.
    """
    attached, index = manifests.attached(image, platform, statements, annotations)
    for blob in attached.blobs:
        repository.put_blob(blob.data, blob.media_type)
    for reference, content in (
        (attached.manifest.descriptor.digest, attached.manifest),
        (index.descriptor.digest, index),
        *((tag, index) for tag in tags),
    ):
        repository.put_manifest(reference, content.data, content.media_type)
    return index.descriptor

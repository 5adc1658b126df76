"""The tools of a base that verify needs, published beside it as an image of its own.

Who takes images in place of building them has to verify them, and would need the compiler image, some
gigabytes, for two programs. This image is the one to serve from, which such an engine has anyway, with one
layer more: the programs, and what they load that is not of glibc. It is made in the registry alone.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftbuild.engine import container
from ftbuild.engine.container import ContainerError
from ftbuild.errors import PublishError
from ftbuild.gates.verify import elf
from ftbuild.host import archives
from ftbuild.publishing import remote_image
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.attest.manifests import Blob
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.client import Repository

if TYPE_CHECKING:
    import docker

FOLDER = "opt/ftbuild-tools"
# image-spec v1.1, layer.md; not compressed, since libraries compress the same bytes differently.
LAYER = "application/vnd.oci.image.layer.v1.tar"
_PLACE = "/tmp/tools"
_COLLECT = f"""\
mkdir {_PLACE}
for tool in {" ".join(elf.TOOLS)}; do cp -L "$(command -v "$tool")" "{_PLACE}/$tool"; done
ldd {_PLACE}/* | sed -n 's|.* => \\(/[^ ]*\\) .*|\\1|p' > /tmp/all
sort -u /tmp/all | grep -Ev '/lib(c|m|dl|pthread)[.]so' > /tmp/loaded || true
xargs -r cp -L -t {_PLACE} < /tmp/loaded
"""


@dataclass(frozen=True)
class Tools:
    """The image: its manifest, and the blobs of it that the base's image to serve from does not have."""

    manifest: Blob
    blobs: tuple[Blob, ...]

    def put(self, repository: Repository) -> RemoteImage:
        """Store the image by its digest, in the repository that has the base's image to serve from."""
        for blob in self.blobs:
            repository.put_blob(blob.data, blob.media_type)
        digest = self.manifest.descriptor.digest
        repository.put_manifest(digest, self.manifest.data, self.manifest.media_type)
        return remote_image.present(repository, digest)


def of(client: docker.DockerClient, devel: str, repository: Repository, serving: RemoteImage) -> Tools:
    """Return the image with the tools of the compiler image `devel`, on the published image to serve from.

    The same for the same images. Raises PublishError if `devel` lacks the tools, or if the registry refuses.
    """
    config, layers = repository.config(serving.image), serving.image.content.layers
    if config.rootfs is None or layers is None:
        raise PublishError("a base lists no layers", where=serving.image.descriptor.digest)
    layer = Blob(LAYER, _layer(client, devel))
    environment = [f"PATH=/{FOLDER}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    made = {
        **config.platform,
        "config": {"Env": [*environment, f"LD_LIBRARY_PATH=/{FOLDER}"]},
        "rootfs": {"type": "layers", "diff_ids": [*config.rootfs.diff_ids, layer.descriptor.digest]},
    }
    settings = Blob(manifests.CONFIG, manifests.canonical(made))
    below: Sequence[dict[str, object]] = [
        part.model_dump(by_alias=True, include={"media_type", "digest", "size"}) for part in layers
    ]
    content = {
        "schemaVersion": 2,
        "mediaType": manifests.MANIFEST,
        "config": settings.descriptor.as_dict(),
        "layers": [*below, layer.descriptor.as_dict()],
    }
    return Tools(Blob(manifests.MANIFEST, manifests.canonical(content)), (settings, layer))


def _layer(client: docker.DockerClient, devel: str) -> bytes:
    try:
        with container.produced(client, devel, _COLLECT, _PLACE) as (_, chunks):
            collected = io.BytesIO(b"".join(chunks))
    except ContainerError as without:
        raise without.converted(PublishError) from without
    files = {}
    with tarfile.open(fileobj=collected, mode="r:") as archive:
        for entry in archive:
            if content := archive.extractfile(entry):
                files[f"{FOLDER}/{entry.name.rpartition('/')[2]}"] = content.read()
    return archives.packed(files, 0o755)

"""Layers of pushed images, compressed again by Zstandard.

Docker Engine with its own image store pushes gzip, whatever the registry could take. Zstandard takes up to
40 % off that (docs/speed.md, "What images weigh"). The configuration, by whose digest engines and the gates'
records name an image, stays as it is.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ftbuild.host import disk
from ftbuild.publishing import compressed_layers, layers
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.piece_stream import PieceStream
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Descriptor, Manifest, Repository
from ftbuild.text.reporter import Pace, Reporter
from ftbuild.text.units import MIB, size

ZSTD = "zstd"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
LEVEL = 9
# How far back a layer may refer to itself, as a power of two: 16 MiB. The decoder of Docker Engine and
# containerd moves a whole window for each MiB that it unpacks (klauspost/compress 1.15.12,
# zstd/framedec.go:269), so one of 128 MiB, with which layers are up to 4 % smaller, takes half as long again
# (docs/speed.md).
WINDOW_LOG = 24
# Of what is compressed at a time by one thread. The bytes depend on it, and not on the number of threads.
_JOB_BYTES = 32 * MIB
_THREADS = 4


def has(image: RemoteImage, compression: str) -> bool:
    """Return whether all layers of an image are compressed so."""
    return all(layers.compression(layer) == compression for layer in image.image.content.layers or [])


@dataclass
class Compressor:
    """Compresses the layers of images, each once, whichever images share it.

    Its files lie in `scratch`, the work folder: the default folder for temporary files is memory on many
    systems. What it has compressed is stored there, for later commands.
    """

    scratch: Path
    _made: dict[tuple[str, str], Descriptor] = field(default_factory=dict)

    def compressed(self, repository: Repository, found: RemoteImage, report: Reporter) -> RemoteImage:
        """Store an image again, in the same repository, with its layers in Zstandard, and return it.

        An image in an index stays as it is, since the statements beside it name its manifest; so does one
        that has such layers. Raises Malformed if a layer is not the one that the configuration names,
        PublishError if the registry refuses, and HostError if the disk has no room for a layer.
        """
        if found.tagged != found.image or has(found, ZSTD):
            return found
        stored = found.image.content.layers or []
        config = found.image.content.config
        assert config is not None
        made = [self._layer(repository, layer, id_, report) for layer, id_ in layers.pairs(repository, found)]
        content = {
            "schemaVersion": 2,
            "mediaType": manifests.MANIFEST,
            "config": Descriptor(manifests.CONFIG, config.digest, config.size).as_dict(),
            "layers": [each.as_dict() for each in made],
        }
        raw = manifests.canonical(content)
        before, after = sum(each.size for each in stored), sum(each.size for each in made)
        report(f"compressed {size(before)} of layers to {size(after)}")
        blob = manifests.Blob(manifests.MANIFEST, raw)
        repository.put_manifest(blob.descriptor.digest, raw, blob.media_type)
        image = Manifest(blob.descriptor, raw)
        return RemoteImage(image, image)

    def _layer(self, repository: Repository, layer: Part, diff_id: str, report: Reporter) -> Descriptor:
        key = repository.name, diff_id
        if key not in self._made:
            self._made[key] = self._known(repository, diff_id) or self._pack(
                repository, layer, diff_id, report
            )
        return self._made[key]

    def _known(self, repository: Repository, diff_id: str) -> Descriptor | None:
        """Return the layer as an earlier command has compressed it, if the registry still has it."""
        known = compressed_layers.find(self.scratch, diff_id)
        return Descriptor(LAYER, *known) if known and repository.has_blob(known[0]) else None

    def _pack(self, repository: Repository, layer: Part, diff_id: str, report: Reporter) -> Descriptor:
        self.scratch.mkdir(parents=True, exist_ok=True)
        disk.require(self.scratch, layer.size, "compressing a layer")
        with TemporaryFile(dir=self.scratch) as file:
            content = layers.checked(repository, layer, diff_id)
            descriptor = compress(_reported(content, report), file)
            repository.put_file(file, descriptor)
        compressed_layers.note(self.scratch, diff_id, descriptor.digest, descriptor.size)
        return descriptor


def compress(pieces: Iterable[bytes], file: IO[bytes], *, window_log: int = WINDOW_LOG) -> Descriptor:
    """Write a layer to a file, and return its descriptor; the same layer gives the same bytes."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL,
        window_log=window_log,
        enable_ldm=True,
        job_size=_JOB_BYTES,
        threads=min(_THREADS, os.cpu_count() or 1),
    )
    packer = zstandard.ZstdCompressor(compression_params=parameters)
    sum_, size_ = hashlib.sha256(), 0
    for packed in packer.read_to_iter(io.BufferedReader(PieceStream(pieces))):
        sum_.update(packed)
        size_ += file.write(packed)
    return Descriptor(LAYER, f"sha256:{sum_.hexdigest()}", size_)


def _reported(pieces: Iterable[bytes], report: Reporter) -> Iterator[bytes]:
    """Yield the pieces, and report now and then how much that was."""
    pace, count = Pace(), 0
    for piece in pieces:
        count += len(piece)
        if pace.is_due():
            report(f"compressing a layer: {size(count)} read")
        yield piece

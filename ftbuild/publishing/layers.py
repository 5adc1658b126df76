"""The layers of an image in a registry, compared with its configuration.

An engine that names images by their configuration looks at the layers when it pulls. A registry does not: its
manifest may name our configuration, whose digest the gates' records have, and layers of somebody else.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator

from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.text.units import GIB, MIB

# The SDK image of 22.12 has 6 GB in all.
MAX_BYTES = 64 * GIB
_PIECE_BYTES = 4 * MIB
_GZIP = 16 + zlib.MAX_WBITS
_HINT = "invoke registry.stage where the image was built, and bring its pushed.json with the records"


def require(repository: Repository, found: RemoteImage) -> None:
    """Raise Malformed unless the layers of an image unpack to what its configuration names.

    Reads all of them, piece by piece.
    """
    where = f"{repository.name}@{found.image.descriptor.digest}"
    rootfs = repository.config(found.image).rootfs
    named, stored = (rootfs.diff_ids if rootfs else []), (found.image.content.layers or [])
    if len(named) != len(stored):
        raise Malformed(
            f"an image has {len(stored)} layers, and its configuration names {len(named)}", where=where
        )
    for layer, diff_id in zip(stored, named, strict=True):
        algorithm = diff_id.partition(":")[0]
        if _digest(unpacked(repository, layer, where), algorithm, where) != diff_id:
            raise Malformed(
                "a layer of an image is not the one that its configuration names",
                where=f"{where}: {layer.digest}",
                hint="find out who pushed it; then delete the tag in the registry and publish again",
            )


def unpacked(repository: Repository, layer: Part, where: str) -> Iterator[bytes]:
    """Yield what a layer unpacks to, in pieces; Malformed for one that is no gzip or tar."""
    kind = layer.media_type.rpartition(".")[2].rpartition("+")[2]
    if kind not in ("gzip", "tar"):
        raise Malformed(
            f"the layers of an image cannot be compared: {layer.media_type}", where=where, hint=_HINT
        )
    pieces = repository.pieces(layer)
    try:
        yield from _gunzipped(pieces) if kind == "gzip" else pieces
    except (zlib.error, EOFError) as broken:
        raise Malformed("a layer cannot be unpacked", where=where) from broken


def _digest(pieces: Iterable[bytes], algorithm: str, where: str) -> str:
    sum_, left = hashlib.new(algorithm), MAX_BYTES
    for content in pieces:
        left -= len(content)
        if left < 0:
            raise Malformed(f"a layer unpacks to more than {MAX_BYTES} bytes", where=where)
        sum_.update(content)
    return f"{algorithm}:{sum_.hexdigest()}"


def _gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what gzip's members hold, one after another, in pieces of limited size."""
    member = zlib.decompressobj(_GZIP)
    for piece in pieces:
        rest = piece
        while rest:
            if member.eof:
                member = zlib.decompressobj(_GZIP)
            yield member.decompress(rest, _PIECE_BYTES)
            rest = member.unused_data if member.eof else member.unconsumed_tail
    while not member.eof:
        last = member.decompress(member.unconsumed_tail, _PIECE_BYTES)
        if not last:
            raise EOFError
        yield last

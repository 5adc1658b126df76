"""The layers of an image in a registry, compared with its configuration.

An engine that names images by their configuration looks at the layers when it pulls. A registry does not: its
manifest may name our configuration, whose digest the gates' records have, and layers of somebody else.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from ftbuild.publishing.piece_stream import PieceStream
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.text.units import GIB, MIB

# The SDK image of 22.12 has 6 GB in all.
MAX_BYTES = 64 * GIB
_PIECE_BYTES = 4 * MIB
_GZIP = 16 + zlib.MAX_WBITS
# Of Zstandard: how far back a frame may refer, and so the memory that unpacking takes. The most that the zstd
# program takes without an option; engines take 512 MiB (klauspost/compress zstd, MaxWindowSize).
MAX_WINDOW_LOG = 27
_HINT = "invoke registry.stage where the image was built, and bring its pushed.json with the records"


def require(repository: Repository, found: RemoteImage) -> None:
    """Raise Malformed unless the layers of an image unpack to what its configuration names.

    Reads all of them, piece by piece.
    """
    for layer, diff_id in pairs(repository, found):
        for _ in checked(repository, layer, diff_id):
            pass


def pairs(repository: Repository, found: RemoteImage) -> list[tuple[Part, str]]:
    """Return each layer of an image, and the digest of what it unpacks to by the image's configuration.

    Raises Malformed if their numbers differ.
    """
    rootfs = repository.config(found.image).rootfs
    named, stored = (rootfs.diff_ids if rootfs else []), (found.image.content.layers or [])
    try:
        return list(zip(stored, named, strict=True))
    except ValueError as differ:
        raise Malformed(
            f"an image has {len(stored)} layers, and its configuration names {len(named)}",
            where=f"{repository.name}@{found.image.descriptor.digest}",
        ) from differ


def checked(repository: Repository, layer: Part, diff_id: str) -> Iterator[bytes]:
    """Yield what a layer unpacks to, in pieces; Malformed at the end unless it has the digest `diff_id`."""
    where = f"{repository.name}@{layer.digest}"
    algorithm = diff_id.partition(":")[0]
    sum_, left = hashlib.new(algorithm), MAX_BYTES
    for content in unpacked(repository, layer, where):
        left -= len(content)
        if left < 0:
            raise Malformed(f"a layer unpacks to more than {MAX_BYTES} bytes", where=where)
        sum_.update(content)
        yield content
    if f"{algorithm}:{sum_.hexdigest()}" != diff_id:
        raise Malformed(
            "a layer of an image is not the one that its configuration names",
            where=where,
            hint="find out who pushed it; then delete the tag in the registry and publish again",
        )


def compression(layer: Part) -> str:
    """Return how a layer is compressed by its media type: gzip, zstd, tar for not at all, or another word."""
    return layer.media_type.rpartition(".")[2].rpartition("+")[2]


def unpacked(repository: Repository, layer: Part, where: str) -> Iterator[bytes]:
    """Yield what a layer unpacks to, in pieces; Malformed for one that is no gzip, zstd or tar."""
    unpack = _UNPACKING.get(compression(layer))
    if unpack is None:
        raise Malformed(
            f"the layers of an image cannot be compared: {layer.media_type}", where=where, hint=_HINT
        )
    try:
        yield from unpack(repository.pieces(layer))
    except (zlib.error, EOFError) as broken:
        raise Malformed("a layer cannot be unpacked", where=where) from broken


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
    # Its sum and its length, which come last, are read only after all that it holds.
    if not member.eof:
        raise EOFError


def _unzstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what the frames of Zstandard hold, in pieces of limited size, with a window of limited size."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << MAX_WINDOW_LOG)
    try:
        with unpacker.stream_reader(
            io.BufferedReader(PieceStream(pieces)), read_across_frames=True
        ) as reader:
            while content := reader.read(_PIECE_BYTES):
                yield content
    except zstandard.ZstdError as broken:
        raise EOFError from broken


_UNPACKING: Mapping[str, Callable[[Iterable[bytes]], Iterable[bytes]]] = {
    "gzip": _gunzipped,
    "zstd": _unzstd,
    "tar": iter,
}

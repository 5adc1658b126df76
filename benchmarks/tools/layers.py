"""Layers of an image in the engine: bytes unpacked and compressed, and the step of each.

Read from `docker save`, whose tar holds an OCI layout (image-spec, image-layout.md): Docker 25 and later.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ftbuild.errors import VerifyError
from ftbuild.host import shell
from ftbuild.publishing.piece_stream import PieceStream

if TYPE_CHECKING:
    import docker

_BLOBS = "blobs/sha256/"
_CHUNK = 1 << 20
# The engine pushes with gzip's default; zstd's own default.
GZIP_LEVEL, ZSTD_LEVEL = 6, 3
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # zlib's notation for gzip
_SHELL = "/bin/sh -c "
_LONGEST_STEP = 40


@dataclass(frozen=True)
class Layer:
    """A layer: the digest of its tar, and its bytes as tar, with gzip and with zstd."""

    digest: str
    step: str
    unpacked: int
    gzip: int
    zstd: int


def read(client: docker.DockerClient, image: str, scratch: Path) -> list[Layer]:
    """Return all layers, lowest first; `scratch` gets one of them at a time.

    Raises VerifyError if the engine keeps layers compressed, so that their tars are not available.
    """
    blobs: dict[str, tuple[int, int, int]] = {}
    documents: dict[str, Any] = {}
    stream = BufferedReader(PieceStream(client.images.get(image).save(chunk_size=_CHUNK)))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            content = cast(BufferedReader, archive.extractfile(member))
            if content.peek(1)[:1] in b"[{":  # manifests and configs, which are JSON
                documents[member.name] = json.load(content)
            else:
                blobs[member.name] = _weigh(content, scratch)
    return list(_layers(image, blobs, documents))


def step(created_by: str) -> str:
    """Return a short form of a history line, without BuildKit's remark and the arguments of RUN."""
    text = created_by.removesuffix(" # buildkit")
    if text.startswith("RUN ") and _SHELL in text:
        text = f"RUN {text.split(_SHELL, 1)[1]}"
    words = " ".join(text.split()) or "imported"
    return words if len(words) <= _LONGEST_STEP else f"{words[: _LONGEST_STEP - 1]}…"


def _layers(
    image: str, blobs: Mapping[str, tuple[int, int, int]], documents: Mapping[str, Any]
) -> Iterator[Layer]:
    (entry,) = documents["manifest.json"]
    config = documents[entry["Config"]]
    steps = [step(line.get("created_by", "")) for line in config["history"] if not line.get("empty_layer")]
    for digest, made_by in zip(config["rootfs"]["diff_ids"], steps, strict=True):
        blob = digest.replace("sha256:", _BLOBS)
        if blob not in blobs:
            raise VerifyError("the engine keeps layers compressed: they cannot be measured", where=image)
        yield Layer(digest, made_by, *blobs[blob])


def _weigh(content: IO[bytes], scratch: Path) -> tuple[int, int, int]:
    """Return the bytes of a layer as tar, with gzip and with zstd."""
    tar, packed = scratch / "layer.tar", scratch / "layer.tar.zst"
    with tar.open("wb") as file:
        shutil.copyfileobj(content, file, _CHUNK)
    shell.run(["zstd", "--quiet", "--force", f"-{ZSTD_LEVEL}", str(tar), "-o", str(packed)])
    sizes = tar.stat().st_size, _zipped(tar), packed.stat().st_size
    tar.unlink()
    packed.unlink()
    return sizes


def _zipped(file: Path) -> int:
    """Return the bytes of a file with gzip."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_FORMAT)
    with file.open("rb") as content:
        count = sum(len(packer.compress(chunk)) for chunk in iter(partial(content.read, _CHUNK), b""))
    return count + len(packer.flush())

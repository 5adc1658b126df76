"""Layers in Zstandard: the same image for engines and gates, checked while they are compressed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from ftbuild.errors import HostError
from ftbuild.host import disk
from ftbuild.publishing import compression, layers, remote_image
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.compression import Compressor
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.client import Manifest
from ftbuild.registry.malformed import Malformed
from ftbuild.text import units
from tests.unit.publishing.shelf import CONFIG, LAYER, MANIFEST, Shelf

GZIP = f"{LAYER}+gzip"
DOCKERS = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKERS_CONFIG = "application/vnd.docker.container.image.v1+json"


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def pushed(
    shelf: Shelf, *contents: bytes, kind: str = DOCKERS, named: list[bytes] | None = None
) -> RemoteImage:
    """Store an image as Docker Engine pushes it; its configuration names what `named` has, or its layers."""
    stored = [shelf.repository.put_blob(gzip.compress(each), kind).as_dict() for each in contents]
    ids = [digest(each) for each in named or contents]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}}
    own = shelf.repository.put_blob(json.dumps(config).encode(), DOCKERS_CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": own.as_dict(), "layers": stored}
    shelf.repository.put_manifest("pushed", json.dumps(content).encode(), MANIFEST)
    found = remote_image.read(shelf.repository, "pushed")
    assert found
    return found


def again(shelf: Shelf, image: RemoteImage) -> RemoteImage:
    """Return an image as a reader of the registry finds it."""
    found = remote_image.read(shelf.repository, image.image.descriptor.digest)
    assert found
    return found


CONTENTS = (b"one" * 9_000, b"two" * 70_000, b"")


def test_an_image_keeps_its_id_and_its_contents(shelf: Shelf) -> None:
    before = pushed(shelf, *CONTENTS)
    after = again(shelf, Compressor(shelf.work).compressed(shelf.repository, before, shelf.said.append))
    assert before.image.content.config
    assert after.image.content.config
    assert after.image.content.config.digest == before.image.content.config.digest
    assert after.image.content.config.media_type == CONFIG
    layers.require(shelf.repository, after)
    stored = after.image.content.layers or []
    assert {layer.media_type for layer in stored} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
    found = [b"".join(layers.unpacked(shelf.repository, layer, "")) for layer in stored]
    assert found == list(CONTENTS)
    assert json.loads(after.image.raw)["mediaType"] == MANIFEST
    (told,) = (line for line in shelf.said if line.startswith("compressed "))
    sizes = [
        units.size(sum(each.size for each in image.image.content.layers or [])) for image in (before, after)
    ]
    assert told == f"compressed {sizes[0]} of layers to {sizes[1]}"


def test_what_is_compressed_already_stays(shelf: Shelf) -> None:
    once = Compressor(shelf.work).compressed(shelf.repository, pushed(shelf, *CONTENTS), shelf.said.append)
    assert compression.has(once, "zstd")
    assert Compressor(shelf.work).compressed(shelf.repository, once, shelf.said.append) is once


def test_an_image_in_an_index_stays_since_statements_name_its_manifest(shelf: Shelf) -> None:
    image = pushed(shelf, *CONTENTS).image
    index = manifests.Blob(manifests.INDEX, b"{}")
    found = RemoteImage(Manifest(index.descriptor, index.data), image)
    assert Compressor(shelf.work).compressed(shelf.repository, found, shelf.said.append) is found


def test_a_layer_of_somebody_else_is_refused(shelf: Shelf) -> None:
    forged = pushed(shelf, b"evil", named=[b"good"])
    with pytest.raises(Malformed, match="not the one that its configuration names"):
        Compressor(shelf.work).compressed(shelf.repository, forged, shelf.said.append)


def test_a_disk_without_room_for_a_layer_is_named_before_anything_is_written(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 10)
    with pytest.raises(HostError, match="compressing a layer needs"):
        Compressor(shelf.work / "new").compressed(shelf.repository, pushed(shelf, b"x" * 999), print)


def test_a_layer_that_images_share_is_compressed_once(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compress = compression.compress

    def counted(pieces: Iterator[bytes], file: io.BytesIO) -> object:
        made.append(1)
        return compress(pieces, file)

    monkeypatch.setattr(compression, "compress", counted)
    compressor = Compressor(shelf.work)
    for contents in ([b"base", b"one"], [b"base", b"two"]):
        compressor.compressed(shelf.repository, pushed(shelf, *contents), shelf.said.append)
    assert len(made) == 3


def test_the_bytes_depend_on_neither_processors_nor_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second machine, and a second run, send nothing that the registry has."""
    content = os.urandom(300_000) * 250
    found = set()
    for processors, size in ((1, 1 << 20), (2, 77_777), (64, 16 << 20)):
        monkeypatch.setattr(os, "cpu_count", lambda processors=processors: processors)
        pieces = (content[at : at + size] for at in range(0, len(content), size))
        file = io.BytesIO()
        descriptor = compression.compress(pieces, file)
        assert (digest(file.getvalue()), file.tell()) == (descriptor.digest, descriptor.size)
        found.add(descriptor.digest)
    assert len(found) == 1


@pytest.mark.parametrize(("processors", "threads"), [(None, 1), (1, 1), (3, 3), (64, 4)])
def test_as_many_threads_compress_as_there_are_processors_but_few(
    processors: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them takes memory for what it compresses at a time."""
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    running: list[int] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(4):
            running.append(len(list(Path("/proc/self/task").iterdir())))
            yield b"layer" * 100_000

    compression.compress(pieces(), io.BytesIO())
    before, meanwhile = running[0], max(running)
    assert meanwhile - before == threads, running


def test_what_a_layer_repeats_is_stored_once_within_a_window_that_engines_unpack_fast() -> None:
    """Libraries for several architectures hold much twice; engines move the window for each MiB."""
    twice, between = os.urandom(1 << 20), os.urandom(12 << 20)
    file = io.BytesIO()
    descriptor = compression.compress([twice + between, twice], file)
    assert descriptor.size < len(between) + len(twice) + len(twice) // 10
    assert zstandard.get_frame_parameters(file.getvalue()).window_size == 16 << 20


def packed(shelf: Shelf, data: bytes, unpacked: bytes) -> RemoteImage:
    stored = shelf.repository.put_blob(data, compression.LAYER).as_dict()
    rootfs = {"type": "layers", "diff_ids": [digest(unpacked)]}
    config = {"architecture": "amd64", "os": "linux", "rootfs": rootfs}
    own = shelf.repository.put_blob(json.dumps(config).encode(), CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": own.as_dict(), "layers": [stored]}
    shelf.repository.put_manifest("packed", json.dumps(content).encode(), MANIFEST)
    found = remote_image.read(shelf.repository, "packed")
    assert found
    return found


def frame(content: bytes, **parameters: int) -> bytes:
    chosen = zstandard.ZstdCompressionParameters.from_level(3, **parameters)
    packer = zstandard.ZstdCompressor(compression_params=chosen).compressobj()
    return packer.compress(content) + packer.flush()  # no size in the frame, as of a stream


def test_several_frames_are_one_layer(shelf: Shelf) -> None:
    """Also with what holds nothing between them: other tools write tables of contents in skippable frames."""
    skippable = bytes.fromhex("502a4d18") + (4).to_bytes(4, "little") + b"skip"
    for between in (b"", frame(b""), skippable):
        whole = frame(b"one") + between + frame(b"two") + between
        layers.require(shelf.repository, packed(shelf, whole, b"onetwo"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (frame(b"good")[:-3], "not the one|cannot be unpacked"),
        (b"\0" * 40, "cannot be unpacked"),
        (gzip.compress(b"good"), "cannot be unpacked"),
        (frame(b"evil"), "not the one"),
        (frame(b"good" * (1 << 20), window_log=layers.MAX_WINDOW_LOG + 1), "cannot be unpacked"),
    ],
    ids=["cut", "nothing", "gzip", "other", "a window of 256 MiB"],
)
def test_a_layer_that_is_none_is_refused(shelf: Shelf, data: bytes, message: str) -> None:
    image = packed(shelf, data, b"good")
    (layer,) = image.image.content.layers or []
    with pytest.raises(Malformed, match=message) as refused:
        layers.require(shelf.repository, image)
    assert refused.value.where == f"{shelf.repository.name}@{layer.digest}"


def test_a_layer_of_the_largest_size_is_taken(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"layer" * 100
    monkeypatch.setattr(layers, "MAX_BYTES", len(content))
    layers.require(shelf.repository, packed(shelf, frame(content), content))
    monkeypatch.setattr(layers, "MAX_BYTES", len(content) - 1)
    with pytest.raises(Malformed, match="unpacks to more than 499 bytes"):
        layers.require(shelf.repository, packed(shelf, frame(content), content))


def test_a_bomb_is_refused_before_it_is_unpacked(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MAX_BYTES", 1 << 20)
    content = b"\0" * (64 << 20)
    with pytest.raises(Malformed, match="unpacks to more than"):
        layers.require(shelf.repository, packed(shelf, frame(content), content))

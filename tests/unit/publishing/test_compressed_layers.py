"""Layers that an earlier command has compressed are not compressed again."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.errors import PublishError
from ftbuild.publishing import compressed_layers, compression, layers
from ftbuild.publishing.compression import Compressor
from ftbuild.registry.client import Descriptor
from tests.unit.publishing.shelf import Shelf
from tests.unit.publishing.test_compression import pushed

BASE, OTHERS = b"base" * 9_000, (b"one" * 900, b"two" * 900)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each layer that is compressed."""
    sizes: list[int] = []
    compress = compression.compress

    def counted(pieces: Iterator[bytes], file: io.BytesIO) -> Descriptor:
        made = compress(pieces, file)
        sizes.append(made.size)
        return made

    monkeypatch.setattr(compression, "compress", counted)
    return sizes


def test_the_second_cell_of_a_base_compresses_its_own_layers_only(shelf: Shelf, packed: list[int]) -> None:
    for other in OTHERS:
        found = Compressor(shelf.work).compressed(shelf.repository, pushed(shelf, BASE, other), print)
        layers.require(shelf.repository, found)
    assert len(packed) == 3


def test_a_second_run_compresses_nothing_and_makes_the_same_image(shelf: Shelf, packed: list[int]) -> None:
    first, second = (
        Compressor(shelf.work).compressed(shelf.repository, pushed(shelf, BASE), print) for _ in range(2)
    )
    assert first.image == second.image
    assert len(packed) == 1


def test_a_layer_that_the_registry_has_lost_is_compressed_again(shelf: Shelf, packed: list[int]) -> None:
    Compressor(shelf.work).compressed(shelf.repository, pushed(shelf, BASE), print)
    elsewhere = replace(shelf, names=replace(shelf.names, repository=f"{shelf.names.repository}-other"))
    found = Compressor(shelf.work).compressed(elsewhere.repository, pushed(elsewhere, BASE), print)
    layers.require(elsewhere.repository, found)
    assert len(packed) == 2


@pytest.mark.parametrize(
    "content", ["", "[]", '{"sha256:a": 1}', '{"latest": ["sha256:a", 1]}', "[" * 100_000]
)
def test_a_damaged_list_is_an_error_with_its_name(content: str, tmp_path: Path) -> None:
    file = tmp_path / compressed_layers.FILE.name
    file.write_text(content)
    with pytest.raises(PublishError, match="the list of compressed layers is damaged") as refused:
        compressed_layers.find(tmp_path, "sha256:" + "0" * 64)
    assert (refused.value.where, refused.value.hint) == (
        str(file),
        "remove it: layers are then compressed again",
    )


def test_the_latest_layers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_layers, "MAX_LAYERS", 3)
    names = [f"sha256:{number:064}" for number in range(5)]
    for size, name in enumerate(names):
        compressed_layers.note(tmp_path, name, name, size)
    assert [compressed_layers.find(tmp_path, name) for name in names] == [
        None, None, (names[2], 2), (names[3], 3), (names[4], 4),
    ]  # fmt: skip
    assert list(json.loads((tmp_path / compressed_layers.FILE.name).read_text())) == names[2:]

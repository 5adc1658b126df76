"""Weight files at the edges of their formats: as small and as large as they can be, and beyond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import untrusted, weight_files

LIMIT = untrusted.JSON_BYTES


def safetensors(file: Path, header: bytes) -> Path:
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    return file


def refusal(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        weight_files.require_whole(file)
    assert caught.value.where == str(file)
    return caught.value.what


@pytest.mark.parametrize(
    "header", [b"{}", b'{"__metadata__": {}}', b'{"__metadata__": []}', b"{}".ljust(LIMIT)]
)
def test_safetensors_without_a_tensor_end_with_their_header(header: bytes, tmp_path: Path) -> None:
    file = safetensors(tmp_path / "model.safetensors", header)
    weight_files.require_whole(file)
    assert weight_files.safetensors_header(file) == (json.loads(header), 8 + len(header))


def test_a_header_that_is_longer_than_the_rest_of_its_file_is_cut_off(tmp_path: Path) -> None:
    file = safetensors(tmp_path / "model.safetensors", b'{"__metadata__": {}}')
    file.write_bytes(file.read_bytes()[:-1])
    assert refusal(file) == "the file is truncated or damaged: its header has 20 bytes"


def test_a_header_that_is_longer_than_any_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with file.open("wb") as stream:
        stream.write((LIMIT + 1).to_bytes(8, "little"))
        stream.truncate(2 * LIMIT)
    what = f"the file is truncated or damaged: its header has {LIMIT + 1} bytes, more than {LIMIT}"
    assert refusal(file) == what


@pytest.mark.parametrize("entry", [{}, {"data_offsets": [4, 0]}, None])
def test_a_header_says_where_each_tensor_is(entry: Any, tmp_path: Path) -> None:
    file = safetensors(tmp_path / "model.safetensors", json.dumps({"w": entry}).encode())
    with pytest.raises(ConfigError, match="its header has no data_offsets for 'w'"):
        weight_files.safetensors_header(file)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [("F32", [2, 2], 8), ("F16", [4], 16), ("BF16", [], 0), ("I64", [3], 23), ("F64", [1, 0], 8)],
)
def test_a_tensor_has_the_bytes_of_its_type_and_shape(
    dtype: str, shape: list[int], size: int, tmp_path: Path
) -> None:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    file = safetensors(tmp_path / "model.safetensors", json.dumps({"w": entry}).encode())
    file.write_bytes(file.read_bytes() + bytes(size))
    assert refusal(file) == f"the file is truncated or damaged: 'w' has {size} bytes, and is {dtype} {shape}"


@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "F8_E4M3", "F8_E5M2", "F4"])
def test_quantized_matrices_are_told_by_their_type_whatever_config_json_says(
    dtype: str, tmp_path: Path
) -> None:
    size = 16 if dtype == "I32" else 4
    entry = {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, size]}

    def written(name: str) -> Path:
        file = safetensors(tmp_path / "model.safetensors", json.dumps({name: entry}).encode())
        file.write_bytes(file.read_bytes() + bytes(size))
        return file

    assert (
        refusal(written("h.0.mlp.c_fc.weight"))
        == f"'h.0.mlp.c_fc.weight' is {dtype}: the weights are quantized"
    )
    weight_files.require_whole(written("h.0.attn.bias"))  # GPT-2's mask, which no converter reads


@pytest.mark.parametrize("protocol", range(8))
def test_a_pickle_has_a_protocol_that_torch_writes(protocol: int, tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(bytes((0x80, protocol)) + b".")
    if protocol in (2, 3, 4, 5):
        weight_files.require_whole(file)
    else:
        assert refusal(file).endswith("it is not a file that PyTorch writes")


def test_an_index_may_name_one_file_and_is_no_pointer_itself(tmp_path: Path) -> None:
    shard = safetensors(tmp_path / "1.safetensors", b"{}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}')
    assert list(weight_files.find(tmp_path)) == [shard]
    index.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ConfigError, match="a Git LFS pointer in place of the weights"):
        list(weight_files.find(tmp_path))

"""What a checkpoint has for its head, compared tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.checkpoints import Head
from ftbuild.models import tied_head
from ftbuild.models.settings import HeadKind

# Type, shape, content.
Tensor = tuple[str, list[int], bytes]
TENSOR: Tensor = ("F16", [2, 3], b"0123456789ab")
HEAD = Head(names=("lm_head.weight",), tables=("wte.weight",), tied=True)
# Larger than what is compared at once, and not a multiple of it.
LARGE = 2**22 + 1
ZEROS, LAST_DIFFERS = bytes(LARGE), bytes(LARGE - 1) + b"\x01"


def write(file: Path, tensors: Mapping[str, Tensor]) -> Path:
    header: dict[str, Any] = {}
    data = b""
    for name, (kind, shape, content) in tensors.items():
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": place}
        data += content
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


@pytest.mark.parametrize(
    ("table", "head", "kind"),
    [
        (None, None, "absent"),
        (TENSOR, None, "absent"),
        (None, TENSOR, "own"),
        (TENSOR, TENSOR, "table"),
        (TENSOR, ("F16", [2, 3], b"0123456789aX"), "own"),
        (TENSOR, ("BF16", [2, 3], b"0123456789ab"), "own"),
        (TENSOR, ("F16", [3, 2], b"0123456789ab"), "own"),
        (("I8", [LARGE], ZEROS), ("I8", [LARGE], ZEROS), "table"),
        (("I8", [LARGE], ZEROS), ("I8", [LARGE], LAST_DIFFERS), "own"),
    ],
    ids=["none", "a table", "a head", "both", "a byte", "a type", "a shape", "large", "the last byte"],
)
def test_a_head_is_the_table_if_every_byte_of_it_is(
    table: Tensor | None, head: Tensor | None, kind: HeadKind, tmp_path: Path
) -> None:
    named = {"x": ("I8", [1], b"x"), "wte.weight": table, "lm_head.weight": head}
    tensors = {name: tensor for name, tensor in named.items() if tensor}
    assert tied_head.kind([write(tmp_path / "model.safetensors", tensors)], HEAD) == kind


def test_head_and_table_are_compared_across_files_but_not_in_pickles(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "1.safetensors", {"x": ("I8", [1], b"x"), "wte.weight": TENSOR}),
        write(tmp_path / "2.safetensors", {"lm_head.weight": TENSOR}),
    ]
    assert tied_head.kind(files, HEAD) == "table"
    pickled = tmp_path / "pytorch_model.bin"
    pickled.write_bytes(b"\x80\x02.")
    assert tied_head.kind([*files, pickled], HEAD) == "not compared"


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        ([TENSOR], []),
        ([TENSOR, TENSOR, TENSOR], []),
        ([TENSOR, TENSOR, ("F16", [2, 3], b"0123456789aX")], ["a and c are the same table"]),
        ([TENSOR, ("BF16", [2, 3], b"0123456789ab")], ["a and b are the same table"]),
    ],
)
def test_one_table_has_one_content_whatever_its_names(
    tables: list[Tensor], wrong: list[str], tmp_path: Path
) -> None:
    head = Head(names=("lm_head.weight",), tables=("a", "b", "c"), tied=True)
    file = write(tmp_path / "model.safetensors", dict(zip("abc", tables, strict=False)))
    found = list(tied_head.contradictions([file], head))
    assert [line.partition(" of embeddings")[0] for line in found] == wrong

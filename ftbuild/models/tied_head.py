"""Whether a checkpoint's head is its table of embeddings: compared in its safetensors, not believed.

What torch pickled would have to be loaded, so it is not compared: transformers 5, whose config.json cannot be
believed, writes safetensors alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.checkpoints import Head
from ftbuild.models import weight_files
from ftbuild.models.settings import HeadKind

# Of two tables of 2 GB each.
_CHUNK = 2**22


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor is: `start` and `end` in bytes from the beginning of its file."""

    file: Path
    start: int
    end: int
    form: tuple[Any, ...]


def kind(files: Iterable[Path], head: Head) -> HeadKind:
    """Return what the checkpoint with these weight files has for its head.

    Raises ConfigError when a file is no safetensors; reads both tensors where they are equal.
    """
    if (tensors := _located(files, head)) is None:
        return "not compared"
    matrix = next((tensors[name] for name in head.names if name in tensors), None)
    table = next((tensors[name] for name in head.tables if name in tensors), None)
    if matrix is None:
        return "absent"
    if table is None:
        return "own"
    return "table" if _equal(matrix, table) else "own"


def contradictions(files: Iterable[Path], head: Head) -> Iterator[str]:
    """Yield the names of the table that a checkpoint has twice, with other numbers each; of safetensors."""
    tensors = _located(files, head) or {}
    first, *others = [name for name in head.tables if name in tensors] or [""]
    for other in others:
        if not _equal(tensors[first], tensors[other]):
            yield f"{first} and {other} are the same table of embeddings, and have different values"


def _located(files: Iterable[Path], head: Head) -> dict[str, _Tensor] | None:
    tensors: dict[str, _Tensor] = {}
    for file in files:
        if file.suffix != ".safetensors":
            return None
        header, begin = weight_files.safetensors_header(file)
        tensors.update(_tensors(file, header, begin, (*head.names, *head.tables)))
    return tensors


def _tensors(
    file: Path, header: Mapping[str, Any], begin: int, names: Iterable[str]
) -> Iterable[tuple[str, _Tensor]]:
    for name in names:
        if name in header:
            start, end = header[name]["data_offsets"]
            form = (header[name].get("dtype"), header[name].get("shape"))
            yield name, _Tensor(file, begin + start, begin + end, form)


def _equal(this: _Tensor, other: _Tensor) -> bool:
    if this.form != other.form or this.end - this.start != other.end - other.start:
        return False
    with this.file.open("rb") as first, other.file.open("rb") as second:
        first.seek(this.start)
        second.seek(other.start)
        left = this.end - this.start
        while left > 0:
            size = min(left, _CHUNK)
            if first.read(size) != second.read(size):
                return False
            left -= size
    return True

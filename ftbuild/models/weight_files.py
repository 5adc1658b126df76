"""Weight files of a checkpoint: all there, whole as far as their formats show it, and without code.

Nothing is loaded here. The converters load with `weights_only`, and what torch would run code of all the same
is refused.
"""

from __future__ import annotations

import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.models import other_formats, untrusted

# In the order in which transformers looks for them (v4.46.3 modeling_utils.py, from_pretrained).
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
MAX_SHARDS = 1000
_BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error)
METADATA = "__metadata__"
# Bytes of a number by safetensors' names of types. Matrices of others are quantized: their scales are apart.
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_SIZES = {**_FLOATS, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_MATRIX = ".weight"
_LFS = b"version https://git-lfs"
_ZIP = b"PK\x03\x04"
# Opcode and protocol with which a pickle begins; torch writes 2.
_PICKLES = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
# Of a TorchScript archive, which torch.load hands to torch.jit.load whatever `weights_only` says (torch 2.0.1
# serialization.py, load).
_SCRIPT = "constants.pkl"
FETCH_AGAIN = "fetch the checkpoint again (git lfs pull, or huggingface-cli download)"


def find(folder: Path) -> Iterator[Path]:
    """Yield the weight files of a Hugging Face checkpoint; ConfigError when some are missing."""
    name = next((name for name in WEIGHTS if (folder / name).is_file()), None)
    if name is None:
        other_format = other_formats.describe(folder)
        raise ConfigError(
            f"the checkpoint has no weights for PyTorch: none of {', '.join(WEIGHTS)}"
            + (f", but {other_format.what}" if other_format else ""),
            where=str(folder),
            hint=other_format.hint if other_format else FETCH_AGAIN,
        )
    if not name.endswith(".index.json"):
        yield folder / name
        return
    index = folder / name
    _refuse_pointer(index)
    listed = untrusted.json_object(index, "an index of weights", FETCH_AGAIN).get("weight_map")
    if not isinstance(listed, dict):
        raise ConfigError("not an index of weights: it has no weight_map", where=str(index), hint=FETCH_AGAIN)
    if odd := [name for name in listed.values() if not untrusted.is_file_name(name)]:
        raise ConfigError(
            f"not an index of weights: {untrusted.shown(odd[0])} is not the name of a file beside it",
            where=str(index),
            hint=FETCH_AGAIN,
        )
    names = sorted(set(listed.values()))
    if not 0 < len(names) <= MAX_SHARDS:
        raise ConfigError(
            f"not an index of weights: it names {len(names)} files, not 1 to {MAX_SHARDS}",
            where=str(index),
            hint=FETCH_AGAIN,
        )
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ConfigError(
            f"{len(missing)} of {len(names)} files of the checkpoint are missing: {', '.join(missing[:5])}",
            where=str(index),
            hint=FETCH_AGAIN,
        )
    yield from (folder / name for name in names)


def require_whole(file: Path) -> None:
    """Raise ConfigError for a truncated file, as far as its format shows it."""
    _refuse_pointer(file)
    if file.suffix == ".safetensors":
        header, begin = safetensors_header(file)
        tensors = {name: entry for name, entry in header.items() if name != METADATA}
        size = begin + max((_end(file, name, entry) for name, entry in tensors.items()), default=0)
        if file.stat().st_size != size:
            raise _truncated(file, f"it has {file.stat().st_size} bytes, its header demands {size}")
        _require_floats(file, tensors)
        return
    _require_tensors(file)


def npz_shapes(file: Path) -> list[tuple[int, ...]]:
    """Return the shapes of the arrays in a file of numpy.savez, in order; ConfigError for any other file."""
    from numpy.lib import format as npy

    _refuse_pointer(file)
    shapes = []
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    version = npy.read_magic(member)
                    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shapes.append(header(member)[0])
    except (*_BROKEN_ZIP, EOFError, MemoryError, RuntimeError, zlib.error) as broken:
        raise _truncated(file, untrusted.sentence(broken)) from broken
    return shapes


def _require_tensors(file: Path) -> None:
    """Raise ConfigError unless torch can load a file as tensors and nothing else.

    A zip archive ends with a directory, so that a truncated one is found. What torch before 1.6 wrote is a
    pickle without a length. The oldest form, a tar, is refused: torch before 2.6 runs code of its pickles
    even with `weights_only` (CVE-2025-32434).
    """
    with file.open("rb") as stream:
        begin = stream.read(len(_ZIP))
    if not begin:
        raise _truncated(file, "it is empty")
    if begin == _ZIP:
        if any(name.rpartition("/")[2] == _SCRIPT for name in _zip_names(file)):
            raise _unsafe(file, "it is a TorchScript program")
    elif not begin.startswith(_PICKLES):
        raise _truncated(file, "it is not a file that PyTorch writes")
    elif tarfile.is_tarfile(file):
        raise _unsafe(file, "it is a tar archive, from which torch loads more than tensors")


def _zip_names(file: Path) -> list[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except _BROKEN_ZIP as broken:
        raise _truncated(file, str(broken)) from broken


def safetensors_header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and where its tensors begin: ConfigError when it is damaged.

    8 bytes for the header's length, header, tensors (format 1.0).
    """
    with file.open("rb") as stream:
        begin = stream.read(8)
        if len(begin) < 8:
            raise _truncated(file, f"it has {len(begin)} bytes")
        length = int.from_bytes(begin, "little")
        if len(begin) + length > file.stat().st_size:
            raise _truncated(file, f"its header has {length} bytes")
        if length > untrusted.JSON_BYTES:
            raise _truncated(file, f"its header has {length} bytes, more than {untrusted.JSON_BYTES}")
        header = untrusted.parsed_object(stream.read(length), file, "a header of safetensors", FETCH_AGAIN)
    for name, entry in header.items():
        if name != METADATA:
            _require_size(file, name, entry, _end(file, name, entry))
    return header, 8 + length


def _end(file: Path, name: str, entry: object) -> int:
    """Return where a tensor ends, in bytes from the end of the header."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    match offsets:
        case [int(start), int(end)] if 0 <= start <= end:
            return end
    raise _truncated(file, f"its header has no data_offsets for {untrusted.shown(name)}")


def _require_size(file: Path, name: str, entry: Mapping[str, Any], end: int) -> None:
    """Raise ConfigError for a tensor of fewer or more bytes than its type and shape need."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [start, _]} if dtype in _SIZES:
            numbers = math.prod(length for length in shape if type(length) is int)
            if end - start != numbers * _SIZES[dtype]:
                shown = untrusted.shown(name), untrusted.shown(shape)
                raise _truncated(file, f"{shown[0]} has {end - start} bytes, and is {dtype} {shown[1]}")


def _require_floats(file: Path, tensors: Mapping[str, Any]) -> None:
    """Raise ConfigError for matrices that are quantized, which no converter multiplies by their scales."""
    for name, entry in tensors.items():
        if not name.endswith(_MATRIX):
            continue
        dtype = entry.get("dtype")
        if isinstance(dtype, str) and dtype not in _FLOATS:
            raise ConfigError(
                f"{untrusted.shown(name)} is {untrusted.plain(dtype)}: the weights are quantized",
                where=str(file),
                hint="fetch the checkpoint that they were made of, in fp32, fp16 or bf16",
            )


def _refuse_pointer(file: Path) -> None:
    with file.open("rb") as stream:
        if stream.read(len(_LFS)) == _LFS:
            raise ConfigError(
                "a Git LFS pointer in place of the weights",
                where=str(file),
                hint="git lfs install && git lfs pull in the checkpoint's repository",
            )


def _unsafe(file: Path, detail: str) -> ConfigError:
    return ConfigError(
        f"the weights are in a format that can run code: {detail}",
        where=str(file),
        hint="use a checkpoint with model.safetensors, or save it as such on an isolated machine",
    )


def _truncated(file: Path, detail: str) -> ConfigError:
    return ConfigError(f"the file is truncated or damaged: {detail}", where=str(file), hint=FETCH_AGAIN)

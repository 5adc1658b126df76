"""Tensors of a Hugging Face checkpoint, read on demand, and weight files of FasterTransformer.

What the converters in this folder share: a module beside them, in the SDK image. Needs numpy; .bin files need
torch. Of .bin files one is in memory at a time, of weight files a few.
"""

from __future__ import annotations

import argparse
import configparser
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
else:
    Array = np.ndarray  # in Python 3.8, NGC's, it has no parameters
DTYPES = {"fp32": np.float32, "fp16": np.float16}
# How safetensors names the types (safetensors README, format). numpy knows no bfloat16.
BFLOAT16 = "BF16"
STORED = {"F32": "<f4", "F16": "<f2", BFLOAT16: "<u2"}
TORCH_STORED = ("torch.float32", "torch.float16")
# Exponents of fp16, all of whose bits are set in infinities and in NaN (IEEE 754). numpy tests
# integers several times faster than fp16.
FP16_EXPONENT = np.uint16(0x7C00)
# Tensors laid out and written side by side; numpy lets other threads run meanwhile.
THREADS = min(8, os.cpu_count() or 1)
# Rows and columns of a block that fits into a core's cache, in fp32 too.
BLOCK = 256


@dataclass(frozen=True)
class Order:
    """What to convert: the files of the checkpoint in `folder`, into `target`/<gpus>-gpu."""

    folder: Path
    target: Path
    gpus: int
    dtype: str
    files: Sequence[str]

    def settings(self) -> dict[str, Any]:
        """Return the checkpoint's config.json, without keys that say nothing.

        What is null or empty counts as absent, as where the checkpoint was checked (settings.py, value).
        """
        content: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return {key: value for key, value in content.items() if value not in (None, {}, [])}


def ordered(description: str | None) -> Order:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--dtype", choices=sorted(DTYPES), required=True)
    parser.add_argument("files", nargs="+")
    return Order(**vars(parser.parse_args()))


class Tensors:
    """The tensors of a checkpoint by Hugging Face's names, read on demand; bf16 as fp32."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self._folder = folder
        self._file_of: dict[str, str] = {}
        self._loaded: tuple[str, Mapping[str, Any]] = ("", {})
        for file in files:
            self._file_of.update(dict.fromkeys(self._names(file), file))  # Python 3.8 has no |= of dicts

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def __call__(self, name: str, *shape: int) -> Array:
        """Return a tensor; SystemExit when there is none, or when it has another shape."""
        if name not in self._file_of:
            raise SystemExit(f"the checkpoint has no {name}")
        file = self._file_of[name]
        tensor = self._safetensor(file, name) if _is_safetensors(file) else self._torch_file(file)[name]
        array = tensor if isinstance(tensor, np.ndarray) else _of_torch(tensor)
        if array.shape != shape:
            raise SystemExit(f"{name} is {list(array.shape)}, not {list(shape)}")
        return array

    def _names(self, file: str) -> list[str]:
        if _is_safetensors(file):
            return [name for name in _header(self._folder / file)[0] if name != "__metadata__"]
        return list(self._torch_file(file))

    def _safetensor(self, file: str, name: str) -> Array:
        header, begin = _header(self._folder / file)
        entry = header[name]
        if entry["dtype"] not in STORED:
            raise SystemExit(f"{name} is {entry['dtype']}; known are {', '.join(STORED)}")
        stored = np.memmap(
            self._folder / file,
            STORED[entry["dtype"]],
            "r",
            offset=begin + entry["data_offsets"][0],
            shape=tuple(entry["shape"]),
        )
        if entry["dtype"] == BFLOAT16:  # the upper half of an fp32
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored

    def _torch_file(self, file: str) -> Mapping[str, Any]:
        if self._loaded[0] != file:
            import torch

            self._loaded = ("", {})  # so that only one file is in memory
            loaded = torch.load(self._folder / file, map_location="cpu", weights_only=True)
            self._loaded = (file, loaded)
        return self._loaded[1]


def by_columns(name: str, matrix: Array, gpus: int) -> Iterator[tuple[str, Array]]:
    """Yield the files of the GPUs, each with an equal share of the last axis."""
    yield from ((f"{name}.{gpu}", part) for gpu, part in enumerate(np.split(matrix, gpus, axis=-1)))


def by_rows(name: str, matrix: Array, gpus: int) -> Iterator[tuple[str, Array]]:
    """Yield the files of the GPUs, each with an equal share of the rows."""
    yield from ((f"{name}.{gpu}", part) for gpu, part in enumerate(np.split(matrix, gpus, axis=0)))


def write(order: Order, section: str, values: Mapping[str, str], arrays: Iterable[tuple[str, Array]]) -> None:
    """Write config.ini and a weight file for each array; SystemExit for numbers that the type cannot hold."""
    out = order.target / f"{order.gpus}-gpu"
    out.mkdir(parents=True)
    config = configparser.ConfigParser(interpolation=None)
    config[section] = values
    with (out / "config.ini").open("w", encoding="utf-8") as stream:
        config.write(stream)
    left, count = iter(arrays), 0
    with ThreadPoolExecutor(THREADS) as pool:
        while some := list(itertools.islice(left, THREADS)):
            count += len(list(pool.map(functools.partial(_write_one, out, order.dtype), some)))
    print(f"{count} files in {out}")


def contiguous(array: Array) -> Array:
    """Return an array whose values lie in order, copied if need be.

    A transposed matrix is copied block by block: row by row every value would come from another cache line.
    """
    if array.ndim != 2 or array.flags.c_contiguous:
        return np.ascontiguousarray(array)
    made = np.empty(array.shape, array.dtype)
    starts = (range(0, size, BLOCK) for size in array.shape)
    for row, column in itertools.product(*starts):
        block = slice(row, row + BLOCK), slice(column, column + BLOCK)
        made[block] = array[block]
    return made


def _write_one(out: Path, dtype: str, named: tuple[str, Array]) -> None:
    name, array = named
    with np.errstate(over="ignore"):
        numbers = contiguous(array).astype(DTYPES[dtype], copy=False)
    if not _is_finite(numbers):
        raise SystemExit(f"{name} has values that are not numbers in {dtype}; --dtype fp32 may hold them")
    numbers.tofile(out / f"{name}.bin")


def _is_finite(numbers: Array) -> bool:
    if numbers.dtype == np.float16:
        return bool(((numbers.view(np.uint16) & FP16_EXPONENT) != FP16_EXPONENT).all())
    return bool(np.isfinite(numbers).all())


def _of_torch(tensor: Any) -> Array:
    """Return a tensor of torch; bf16, which numpy lacks, as fp32."""
    array: Array = tensor.numpy() if str(tensor.dtype) in TORCH_STORED else tensor.float().numpy()
    return array


def _is_safetensors(file: str) -> bool:
    return file.endswith(".safetensors")


@functools.lru_cache(maxsize=None)  # noqa: UP033 (Python 3.8)
def _header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and where its tensors begin."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return json.loads(stream.read(length)), 8 + length

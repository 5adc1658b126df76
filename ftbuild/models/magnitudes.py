"""Values of weight files that no number stands for, or that fp16 cannot hold.

Most converters cast in torch, which makes infinities of what is too large and says nothing, and a server that
computes in fp16 casts what it loads. Here is the one place that all of them pass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftbuild.models.checkpoint_tensors import THREADS

# Without the sign, the bits of two numbers are in the order of their sizes; infinity and NaN come last. From
# 65520 on fp16 rounds to infinity (IEEE 754).
_BITS = {"fp16": ("<u2", 0x7FFF, 0x7C00), "fp32": ("<u4", 0x7FFFFFFF, 0x7F800000)}
_BEYOND_FP16 = int(np.float32(65520).view(np.uint32))
# Numbers that are looked at together.
_CHUNK = 2**22


@dataclass(frozen=True)
class Extremes:
    """Names of files: with infinities or NaN, and with values that would be infinite in fp16."""

    no_numbers: tuple[str, ...]
    beyond_fp16: tuple[str, ...]


def examine(folder: Path, names: Iterable[str], data_type: str) -> Extremes:
    """Look at every value of weight files of a data type."""
    ordered = sorted(names)
    with ThreadPoolExecutor(THREADS) as pool:
        largest = dict(
            zip(ordered, pool.map(functools.partial(_largest, folder, data_type), ordered), strict=True)
        )
    infinite = _BITS[data_type][2]
    return Extremes(
        tuple(name for name, bits in largest.items() if bits >= infinite),
        tuple(
            name for name, bits in largest.items() if data_type == "fp32" and _BEYOND_FP16 <= bits < infinite
        ),
    )


def _largest(folder: Path, data_type: str, name: str) -> int:
    """Return the bits of the largest value in a file, without its sign."""
    kind, mask, _ = _BITS[data_type]
    largest = 0
    with (folder / name).open("rb") as stream:
        while len(numbers := np.fromfile(stream, kind, _CHUNK)):
            largest = max(largest, int((numbers & numbers.dtype.type(mask)).max()))
    return largest

"""Copies of a model whose weights are wrong by one file: no server may load them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from ftbuild.models import config_pbtxt
from ftbuild.models.config_pbtxt import CONFIG, VERSION

# The norm at the end, which every family that generates has, under one of two names.
LAST_NORM = "*final_layer*norm.weight.bin"


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def _lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() * 2)


# Name of the copy -> what is wrong with one file of it.
WRONG: Mapping[str, Callable[[Path], None]] = {"cut": _cut, "missing": Path.unlink, "too-long": _lengthen}


def write(folder: Path, config: str, weights: Path) -> None:
    """Write a copy of a model for each entry of `WRONG` into a repository: nothing loads them by itself."""
    for name, spoil in WRONG.items():
        copy = folder / name / VERSION / weights.resolve().name
        shutil.copytree(weights, copy)
        spoil(max(copy.glob(LAST_NORM)))
        parsed = config_pbtxt.parse(config)
        parsed.name = name
        (folder / name / CONFIG).write_text(config_pbtxt.text(parsed), encoding="utf-8")

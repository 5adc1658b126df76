"""Checks of converted weights: the files of a folder `<n>-gpu`, against models.yaml.

A server that lacks a file goes on with random weights (FT v5.3 memory_utils.cu:300-320, memory_utils.h:26),
and one that lacks a key of config.ini ends (3rdparty/INIReader.h), so both are checked before.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ftbuild.config.checkpoints import Converter
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, formula, untrusted

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
GPUS = "gpus"
# Three times those of 200 layers on 64 GPUs.
MAX_FILES = 250_000
_COUNTER = re.compile(r"{(\w+)}")


def folder_name(gpus: int) -> str:
    """Return the name of the folder that every converter writes and the backend looks for."""
    return f"{gpus}-gpu"


def expected(converter: Converter, facts: Mapping[str, int], gpus: int, data_type: str) -> dict[str, int]:
    """Return name -> bytes of every weight file of a model with these `facts`, split over `gpus` GPUs.

    Raises ConfigError when no model of this family has so many.
    """
    numbers = {**facts, GPUS: gpus}
    counted = [math.prod(numbers[c] for c in _COUNTER.findall(pattern)) for pattern in converter.files]
    if sum(counted) > MAX_FILES:
        factors = ", ".join(f"{numbers[c]} {c}" for c in _counters(converter))
        raise ConfigError(
            f"{factors}: {sum(counted)} weight files, more than the {MAX_FILES} of any model",
            hint="check the numbers in the checkpoint's configuration, and --gpus",
        )
    sizes: dict[str, int] = {}
    for pattern, size in converter.files.items():
        counters = _COUNTER.findall(pattern)
        values = formula.value(size, numbers.__getitem__) // (gpus if GPUS in counters else 1)
        if not values:
            continue
        for counts in itertools.product(*(range(numbers[counter]) for counter in counters)):
            name = pattern.format(**dict(zip(counters, counts, strict=True)))
            sizes[name] = values * ITEM_BYTES[data_type]
    return sizes


def part(converter: Converter, files: Iterable[str]) -> Converter:
    """Return the converter with those `files` alone of its weight files, given by their keys."""
    return converter.model_copy(update={"files": {name: converter.files[name] for name in files}})


def added_config(converter: Converter, facts: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Return the values that config.ini of a model with these `facts` lacks: section -> key -> value."""
    return {
        section: {key: _COUNTER.sub(lambda fact: str(facts[fact[1]]), value) for key, value in values.items()}
        for section, values in converter.config.items()
    }


def of_one_gpu(converter: Converter, facts: Mapping[str, int], gpus: int, data_type: str) -> int:
    """Return the bytes of the files that one of the GPUs loads: its shares, and all that are not split.

    Raises ConfigError as `expected`.
    """
    split = [name for name in converter.files if GPUS in _COUNTER.findall(name)]
    whole = [name for name in converter.files if name not in split]

    def total(files: Iterable[str]) -> int:
        return sum(expected(part(converter, files), facts, gpus, data_type).values())

    return total(whole) + total(split) // gpus


def complaints(
    folder: Path, converter: Converter, facts: Mapping[str, int], gpus: int, data_type: str
) -> Iterator[str]:
    """Yield every defect of the converted weights in `folder`."""
    file = folder / config_ini.FILE
    if not file.is_file():
        yield f"{config_ini.FILE} was not written"
    else:
        try:
            values = config_ini.all_values(file)
        except ConfigError as broken:
            yield broken.what
        else:
            yield from _config_complaints(values, converter, facts, data_type)
    sizes = expected(converter, facts, gpus, data_type)
    there = {path.name: path.lstat().st_size for path in folder.glob("*.bin")}
    for name in sorted(sizes.keys() | there.keys()):
        if name not in there:
            yield f"{name} is missing"
        elif name not in sizes:
            yield f"{untrusted.plain(name)} is not a file of this model"
        elif there[name] != sizes[name]:
            yield f"{name} has {there[name]} bytes, not {sizes[name]}"


def _config_complaints(
    values: Mapping[str, str], converter: Converter, facts: Mapping[str, int], data_type: str
) -> Iterator[str]:
    for fact, source in converter.facts.items():
        try:
            written = formula.value(source, lambda key: config_ini.number(values[key]))
        except (KeyError, ValueError) as unknown:
            yield f"{config_ini.FILE} has no {source} ({untrusted.plain(str(unknown))})"
            continue
        if written != facts[fact]:
            yield f"{config_ini.FILE} has {source} = {written}, the checkpoint {facts[fact]}"
    if (written_type := values.get(converter.data_type)) != data_type:
        shown = untrusted.plain(str(written_type))
        yield f"{config_ini.FILE} has {converter.data_type} = {shown}, not {data_type}"


def _counters(converter: Converter) -> list[str]:
    counters = (counter for pattern in converter.files for counter in _COUNTER.findall(pattern))
    return list(dict.fromkeys(counters))

"""Checkpoints, checked before a converter starts: the right model, complete, and fit for the converter.

Pure but for reading the folder; weights are never loaded. Every defect is a ConfigError that names the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import CheckpointConfig, CheckpointFormat, Converter, ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import formula

CONFIG = "config.json"
# In the order in which transformers looks for them (v4.46.3 modeling_utils.py, from_pretrained).
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# Mesh Transformer JAX writes one folder for each of 8 TPU cores (FT v5.3 gptj_ckpt_convert.py:158, 212-214).
SHARDS = 8
_LFS = b"version https://git-lfs"
_ZIP = b"PK"
_AGAIN = "fetch the checkpoint again (git lfs pull, or huggingface-cli download)"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are complete; `settings` is its config.json, `files` are its weights."""

    folder: Path
    settings: Mapping[str, Any]
    facts: Mapping[str, int]
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(file.stat().st_size for file in self.files)

    def has_whole(self, name: str) -> bool:
        """Return whether it has a weight file of that name; ConfigError when that is truncated."""
        file = self.folder / name
        if not file.is_file():
            return False
        _require_whole(file)
        return True


def format_of(folder: Path) -> CheckpointFormat:
    """Return the kind of checkpoint in `folder`; ConfigError when there is none."""
    if not folder.is_dir():
        raise ConfigError(
            "the folder of the checkpoint does not exist", where=str(folder), hint="check --checkpoint"
        )
    if (folder / CONFIG).is_file():
        return "huggingface"
    if (folder / "shard_0").is_dir():
        return "jax"
    raise ConfigError(
        f"no checkpoint here: neither {CONFIG} (Hugging Face) nor shard_0 (Mesh Transformer JAX)",
        where=str(folder),
        hint="--checkpoint names the folder with these files itself, for instance step_383500",
    )


def read(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read the checkpoint in `folder`; ConfigError unless it is of that family and complete."""
    return _READERS[converter.format](folder, models, family, converter)


def obstacles(
    checkpoint: Checkpoint, described: CheckpointConfig, converter: Converter, gpus: int
) -> list[str]:
    """Return the reasons why a converter would write wrong weights for that many GPUs, if any."""
    assumptions = [described.assumes, converter.assumes, *([converter.assumes_split] if gpus > 1 else [])]
    found = [
        f"{key} is {checkpoint.settings.get(key)!r}; the converter and FasterTransformer assume "
        + " or ".join(str(value) for value in known if value is not None or len(known) == 1)
        for assumed in assumptions
        for key, known in assumed.items()
        if checkpoint.settings.get(key) not in known
    ]
    for fact, fixed in converter.fixed.items():
        value = formula.value(fixed, checkpoint.facts.__getitem__)
        if checkpoint.facts[fact] != value:
            found.append(f"{fact} is {checkpoint.facts[fact]}; the converter assumes {fixed} = {value}")
    found += [
        f"{checkpoint.facts[fact]} {fact} cannot be split over {gpus} GPUs"
        for fact in described.splits
        if gpus < 1 or checkpoint.facts[fact] % gpus
    ]
    return found


def _read_huggingface(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    file = folder / CONFIG
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        model_type = settings["model_type"]
    except (ValueError, KeyError, TypeError) as broken:
        raise ConfigError(
            f"not a config.json with a model_type: {broken}", where=str(file), hint=_AGAIN
        ) from broken
    _require_family(file, model_type, models, family)
    described = models.families[family].checkpoint
    facts = {name: _fact(file, settings, described, name) for name in described.facts}
    files = tuple(_weight_files(folder))
    for weights in files:
        _require_whole(weights)
    return Checkpoint(folder, settings, facts, files)


def _read_jax(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read a checkpoint without a configuration: the converter knows one model."""
    parts = [sorted(file.name for file in (folder / f"shard_{i}").glob("*.npz")) for i in range(SHARDS)]
    longest = max(parts, key=len)
    missing = [f"shard_{i}/{name}" for i in range(SHARDS) for name in longest if name not in parts[i]]
    if missing or not longest:
        raise ConfigError(
            f"parts of the checkpoint are missing: {', '.join(missing[:5]) or 'there is no *.npz'}",
            where=str(folder),
            hint="unpack the archive of the checkpoint again",
        )
    files = tuple(folder / f"shard_{i}" / name for i in range(SHARDS) for name in longest)
    for file in files:
        _require_whole(file)
    return Checkpoint(folder, {}, {name: int(number) for name, number in converter.fixed.items()}, files)


_READERS: Mapping[str, Callable[[Path, ModelsConfig, str, Converter], Checkpoint]] = {
    "huggingface": _read_huggingface,
    "jax": _read_jax,
}


def _require_family(file: Path, model_type: str, models: ModelsConfig, family: str) -> None:
    if model_type in models.families[family].checkpoint.model_types:
        return
    fitting = [name for name, f in models.families.items() if model_type in f.checkpoint.model_types]
    raise ConfigError(
        f"the checkpoint is a {model_type} model, not {family}",
        where=str(file),
        hint=f"--model {fitting[0]}" if fitting else f"families: {', '.join(models.families)}",
    )


def _fact(file: Path, settings: Mapping[str, Any], described: CheckpointConfig, name: str) -> int:
    source = described.facts[name]
    alternatives = source if isinstance(source, tuple) else (source,)

    def number_of(key: str) -> int:
        found = settings[key]
        return described.texts[key][found] if isinstance(found, str) else int(found)

    for alternative in alternatives:
        try:
            return formula.value(alternative, number_of)
        except (KeyError, TypeError):  # no such key, or null
            continue
    raise ConfigError(
        f"config.json has no {name} (as {' or '.join(map(str, alternatives))})",
        where=str(file),
        hint="the server cannot be configured without it; add it to a copy of the checkpoint",
    )


def _weight_files(folder: Path) -> Iterator[Path]:
    name = next((name for name in WEIGHTS if (folder / name).is_file()), None)
    if name is None:
        raise ConfigError(
            f"the checkpoint has no weights for PyTorch: none of {', '.join(WEIGHTS)}",
            where=str(folder),
            hint="weights for TensorFlow or Flax must be saved for PyTorch first",
        )
    if not name.endswith(".index.json"):
        yield folder / name
        return
    index = folder / name
    _refuse_pointer(index)
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise ConfigError(f"not an index of weights: {broken!r}", where=str(index), hint=_AGAIN) from broken
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ConfigError(
            f"{len(missing)} of {len(names)} files of the checkpoint are missing: {', '.join(missing[:5])}",
            where=str(index),
            hint=_AGAIN,
        )
    yield from (folder / name for name in names)


def _require_whole(file: Path) -> None:
    """Raise ConfigError for a truncated file, as far as its format shows it."""
    _refuse_pointer(file)
    if file.suffix == ".safetensors":
        wanted = _safetensors_size(file)
        if file.stat().st_size != wanted:
            raise _truncated(file, f"it has {file.stat().st_size} bytes, its header demands {wanted}")
        return
    with file.open("rb") as stream:
        is_zip = stream.read(len(_ZIP)) == _ZIP
    # A .bin of torch before 1.6 is a pickle, which has no length; the others end with a directory.
    if file.suffix == ".npz" or is_zip:
        try:
            zipfile.ZipFile(file).close()
        except zipfile.BadZipFile as broken:
            raise _truncated(file, str(broken)) from broken
    elif not file.stat().st_size:
        raise _truncated(file, "it is empty")


def _safetensors_size(file: Path) -> int:
    """Return the size of a complete file: 8 bytes for the header's length, header, tensors (format 1.0)."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > file.stat().st_size:
            raise _truncated(file, f"its header has {length} bytes")
        try:
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise _truncated(file, f"its header cannot be read ({broken})") from broken
    return 8 + length + max(ends, default=0)


def _refuse_pointer(file: Path) -> None:
    with file.open("rb") as stream:
        if stream.read(len(_LFS)) == _LFS:
            raise ConfigError(
                "a Git LFS pointer in place of the weights",
                where=str(file),
                hint="git lfs install && git lfs pull in the checkpoint's repository",
            )


def _truncated(file: Path, detail: str) -> ConfigError:
    return ConfigError(f"the file is truncated or damaged: {detail}", where=str(file), hint=_AGAIN)

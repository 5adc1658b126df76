"""Checkpoints, checked before a converter starts: the right model, complete, and fit for the converter.

Pure but for reading the folder; weights are never loaded. Every defect is a ConfigError that names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import CheckpointConfig, CheckpointFormat, Converter, ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import formula, untrusted, weight_files
from ftbuild.models.weight_files import FETCH_AGAIN

CONFIG = "config.json"
# Mesh Transformer JAX writes one folder for each of 8 TPU cores (FT v5.3 gptj_ckpt_convert.py:158, 212-214).
SHARDS = 8
# Facts that may be 0: token ids, and what a model can lack.
FROM_ZERO = frozenset({"start", "end", "rotary", "parallel", "gated"})


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
        weight_files.require_whole(file)
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
    settings = checkpoint.settings
    found = [
        f"{key} is {untrusted.shown(settings.get(key))}; the converter and FasterTransformer assume "
        + " or ".join(str(value) for value in known if value is not None or len(known) == 1)
        for assumed in assumptions
        for key, known in assumed.items()
        if settings.get(key) not in known
    ]
    for fact, fixed in converter.fixed.items():
        value = formula.value(fixed, checkpoint.facts.__getitem__)
        if checkpoint.facts[fact] != value:
            found.append(f"{fact} is {checkpoint.facts[fact]}; the converter assumes {fixed} = {value}")
    heads, hidden = checkpoint.facts.get("heads", 1), checkpoint.facts.get("hidden", 0)
    if "head_size" not in checkpoint.facts and hidden % heads:
        found.append(f"hidden is {hidden}, which {heads} heads cannot share evenly")
    found += [
        f"{checkpoint.facts[fact]} {fact} cannot be split over {gpus} GPUs"
        for fact in described.splits
        if gpus < 1 or checkpoint.facts[fact] % gpus
    ]
    return found


def _read_huggingface(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    file = folder / CONFIG
    untrusted.require_links_inside(folder)
    what = "a config.json with a model_type"
    settings = untrusted.json_object(file, what, FETCH_AGAIN)
    model_type = settings.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError(
            f"not {what}: it is {untrusted.shown(model_type)}", where=str(file), hint=FETCH_AGAIN
        )
    _require_family(file, model_type, models, family)
    described = models.families[family].checkpoint
    facts = {name: _fact(file, settings, described, name) for name in described.facts}
    files = tuple(weight_files.find(folder))
    for weights in files:
        weight_files.require_whole(weights)
    return Checkpoint(folder, settings, facts, files)


def _read_jax(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read a checkpoint without a configuration: the converter knows one model."""
    untrusted.require_links_inside(folder)
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
        weight_files.require_whole(file)
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
        f"the checkpoint is a {untrusted.plain(model_type)} model, not {family}",
        where=str(file),
        hint=f"--model {fitting[0]}" if fitting else f"families: {', '.join(models.families)}",
    )


def _fact(file: Path, settings: Mapping[str, Any], described: CheckpointConfig, name: str) -> int:
    source = described.facts[name]
    alternatives = source if isinstance(source, tuple) else (source,)

    def number_of(key: str) -> int:
        found = settings[key]
        if isinstance(found, str) and key in described.texts:
            return described.texts[key][found]
        if found is None:
            raise KeyError(key)
        return (
            int(found) if isinstance(found, bool) else untrusted.whole_number(found, key, file, FETCH_AGAIN)
        )

    for alternative in alternatives:
        try:
            value = formula.value(alternative, number_of)
        except KeyError:  # no such key, null, or a text without a number
            continue
        return untrusted.whole_number(value, name, file, FETCH_AGAIN, low=0 if name in FROM_ZERO else 1)
    raise ConfigError(
        f"config.json has no {name} (as {' or '.join(map(str, alternatives))})",
        where=str(file),
        hint="the server cannot be configured without it; add it to a copy of the checkpoint",
    )

"""Checkpoints, checked before a converter starts: the right model, complete, and fit for the converter.

Pure but for reading the folder; weights are never loaded. Every defect is a ConfigError that names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import CheckpointConfig, CheckpointFormat, Converter, ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import formula, mesh_shards, other_formats, untrusted, weight_files
from ftbuild.models.weight_files import FETCH_AGAIN

CONFIG = "config.json"
UNPACK_AGAIN = "unpack the archive of the checkpoint again"
_WHAT = "a config.json with a model_type"
# Mesh Transformer JAX writes one folder for each of 8 TPU cores (FT v5.3 gptj_ckpt_convert.py:158, 212-214).
SHARDS = 8
# Facts that may be 0: token ids, and what a model can lack.
FROM_ZERO = frozenset({"start", "end", "rotary", "parallel", "gated", "norm_first"})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are complete; `files` are its weights.

    `settings` is its config.json, or, where it is not `configured`, what stands for it.
    """

    folder: Path
    settings: Mapping[str, Any]
    facts: Mapping[str, int]
    files: tuple[Path, ...]
    configured: bool = True

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
    if folder.is_file():
        raise ConfigError(
            "the checkpoint is a file, not a folder", where=str(folder), hint=f"--checkpoint {folder.parent}"
        )
    if not folder.is_dir():
        raise ConfigError(
            "the folder of the checkpoint does not exist", where=str(folder), hint="check --checkpoint"
        )
    if (folder / "shard_0").is_dir():
        return "jax"
    if (folder / CONFIG).is_file():
        return "huggingface"
    found = other_formats.describe(folder)
    raise ConfigError(
        f"no checkpoint here: neither {CONFIG} (Hugging Face) nor shard_0 (Mesh Transformer JAX)"
        + (f", but {found.what}" if found else ""),
        where=str(folder),
        hint=found.hint if found else "--checkpoint names the folder that has these files itself",
    )


def family_of(folder: Path, models: ModelsConfig) -> str:
    """Return the family of the checkpoint in `folder`; ConfigError when there is none that we know."""
    kind = format_of(folder)
    if kind != "huggingface":
        return next(n for n, f in models.families.items() if any(c.format == kind for c in f.converters))
    file = folder / CONFIG
    untrusted.require_links_inside(folder)
    model_type = _model_type(file, _settings(folder))
    fitting = _families_of(model_type, models)
    if not fitting:
        raise ConfigError(
            f"the checkpoint is a {untrusted.plain(model_type)} model, which no family here has",
            where=str(file),
            hint=f"families: {', '.join(models.families)}",
        )
    return fitting[0]


def read(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read the checkpoint in `folder`; ConfigError unless it is of that family and complete."""
    untrusted.require_links_inside(folder)
    return _READERS[converter.format](folder, models, family, converter)


def obstacles(
    checkpoint: Checkpoint, described: CheckpointConfig, converter: Converter, gpus: int
) -> list[str]:
    """Return the reasons why a converter would write wrong weights for that many GPUs, if any."""
    assumptions = [described.assumes, converter.assumes, *([converter.assumes_split] if gpus > 1 else [])]
    found = [
        f"{key} is {untrusted.shown(value)}; the converter and FasterTransformer assume "
        + " or ".join(str(value) for value in known if value is not None or len(known) == 1)
        for assumed in assumptions
        for key, known in assumed.items()
        if (value := _setting(checkpoint.settings, key)) not in known
    ]
    for fact, fixed in converter.fixed.items():
        value = formula.value(fixed, checkpoint.facts.__getitem__)
        if checkpoint.facts[fact] != value:
            found.append(f"{fact} is {checkpoint.facts[fact]}; the converter assumes {fixed} = {value}")
    heads, hidden = checkpoint.facts.get("heads", 1), checkpoint.facts.get("hidden", 0)
    if "head_size" not in checkpoint.facts and hidden % heads:
        found.append(f"hidden is {hidden}, which {heads} heads cannot share evenly")
    elif described.head_sizes and hidden // heads not in described.head_sizes:
        known = ", ".join(map(str, described.head_sizes))
        found.append(f"a head has {hidden // heads} values; FasterTransformer computes heads of {known}")
    found += [
        f"{checkpoint.facts[fact]} {fact} cannot be split over {gpus} GPUs"
        for fact in described.splits
        if gpus < 1 or checkpoint.facts[fact] % gpus
    ]
    return found


def _read_huggingface(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    file = folder / CONFIG
    settings = _settings(folder)
    _require_family(file, _model_type(file, settings), models, family)
    described = models.families[family].checkpoint
    facts = _facts(file, settings, described)
    files = tuple(weight_files.find(folder))
    for weights in files:
        weight_files.require_whole(weights)
    return Checkpoint(folder, settings, facts, files)


def _read_jax(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read a checkpoint of Mesh Transformer JAX: GPT-J 6B, or what a config.json beside its shards says."""
    configured = (folder / CONFIG).is_file()
    settings = _settings(folder) if configured else converter.settings
    _require_family(folder / CONFIG, _model_type(folder / CONFIG, settings), models, family)
    facts = _facts(folder / CONFIG, settings, models.families[family].checkpoint)
    parts = [sorted(file.name for file in (folder / f"shard_{i}").glob("*.npz")) for i in range(SHARDS)]
    longest = max(parts, key=len)
    missing = [f"shard_{i}/{name}" for i in range(SHARDS) for name in longest if name not in parts[i]]
    if missing or not longest:
        raise ConfigError(
            f"parts of the checkpoint are missing: {', '.join(missing[:5]) or 'there is no *.npz'}",
            where=str(folder),
            hint=UNPACK_AGAIN,
        )
    if odd := [name for name in longest if not name.removesuffix(".npz").isdecimal()]:
        raise ConfigError(
            f"{untrusted.shown(odd[0])} is no part of a checkpoint: these are 0.npz, 1.npz, ...",
            where=str(folder),
            hint=UNPACK_AGAIN,
        )
    names = [f"shard_{i}/{name}" for i in range(SHARDS) for name in longest]
    _require_shapes(folder, names, facts, configured)
    return Checkpoint(folder, settings, facts, tuple(folder / name for name in names), configured)


def _require_shapes(folder: Path, names: Iterable[str], facts: Mapping[str, int], configured: bool) -> None:
    """Raise ConfigError unless the arrays of every core are those of a model with these facts."""
    layers = facts["layers"]
    wanted = mesh_shards.count(layers)
    hint = (
        "config.json beside the shards must describe them"
        if configured
        else "for another model than GPT-J 6B, put its config.json (of Hugging Face's form) beside the shards"
    )
    for core in mesh_shards.by_core(names):
        place = folder / Path(core[0]).parent
        found = [shape for part in core for shape in weight_files.npz_shapes(folder / part)]
        if found[:1] == [()]:
            raise ConfigError(
                "the checkpoint begins with the state of its optimizer",
                where=str(place),
                hint="mesh-transformer-jax's slim_model.py leaves that out",
            )
        # The number of the training step may follow.
        if len(found) - wanted not in (0, 1):
            raise ConfigError(
                f"{len(found)} arrays, not {wanted} and the step, of a model with {layers} layers",
                where=str(place),
                hint=hint,
            )
        for tensor, there in zip(mesh_shards.tensors(layers), found, strict=False):
            if there != (shape := tensor.part(facts, SHARDS)):
                raise ConfigError(
                    f"{tensor.name} has the shape {list(there)}, not {list(shape)}",
                    where=str(place),
                    hint=hint,
                )


_READERS: Mapping[str, Callable[[Path, ModelsConfig, str, Converter], Checkpoint]] = {
    "huggingface": _read_huggingface,
    "jax": _read_jax,
}


def _settings(folder: Path) -> dict[str, Any]:
    return untrusted.json_object(folder / CONFIG, _WHAT, FETCH_AGAIN)


def _setting(settings: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key of config.json, of `a.b` that of b in the object a; None without one."""
    outer, _, inner = key.partition(".")
    found = settings.get(outer)
    if not inner:
        return found
    return _setting(found, inner) if isinstance(found, dict) else None


def _model_type(file: Path, settings: Mapping[str, Any]) -> str:
    model_type = settings.get("model_type")
    if isinstance(model_type, str):
        return model_type
    raise ConfigError(f"not {_WHAT}: it is {untrusted.shown(model_type)}", where=str(file), hint=FETCH_AGAIN)


def _families_of(model_type: str, models: ModelsConfig) -> list[str]:
    return [name for name, family in models.families.items() if model_type in family.checkpoint.model_types]


def _require_family(file: Path, model_type: str, models: ModelsConfig, family: str) -> None:
    if model_type in models.families[family].checkpoint.model_types:
        return
    fitting = _families_of(model_type, models)
    raise ConfigError(
        f"the checkpoint is a {untrusted.plain(model_type)} model, not {family}",
        where=str(file),
        hint=f"--model {fitting[0]}" if fitting else f"families: {', '.join(models.families)}",
    )


def _facts(file: Path, settings: Mapping[str, Any], described: CheckpointConfig) -> dict[str, int]:
    return {name: _fact(file, settings, described, name) for name in described.facts}


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
        low = 0 if name in FROM_ZERO else 1
        number = untrusted.whole_number(value, name, file, FETCH_AGAIN, low=low)
        return min(number, described.at_most.get(name, number))
    raise ConfigError(
        f"config.json has no {name} (as {' or '.join(map(str, alternatives))})",
        where=str(file),
        hint="the server cannot be configured without it; add it to a copy of the checkpoint",
    )

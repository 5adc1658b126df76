"""Checkpoints, checked before a converter starts: the right model, complete, and fit for the converter.

Pure but for reading the folder; weights are never loaded. Every defect is a ConfigError that names the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftbuild.config.checkpoints import CheckpointConfig, CheckpointFormat, Converter
from ftbuild.config.families import ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import formula, mesh_shards, other_formats, settings, tied_head, untrusted, weight_files
from ftbuild.models.settings import HeadKind
from ftbuild.models.weight_files import FETCH_AGAIN

CONFIG = "config.json"
UNPACK_AGAIN = "unpack the archive of the checkpoint again"
_WHAT = "a config.json with a model_type"
# Mesh Transformer JAX writes one folder for each of 8 TPU cores (FT v5.3 gptj_ckpt_convert.py:158, 212-214).
SHARDS = 8
# Facts that may be 0: token ids, and what a model can lack.
FROM_ZERO = frozenset({"start", "end", "rotary", "parallel", "gated", "norm_first", "scaled"})

# Facts that are ids of tokens, of which config.json may have a list.
TOKENS = frozenset({"start", "end"})
# What a real number of a model may be: FasterTransformer computes with float.
MIN, MAX = 1e-30, 1e30


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are complete; `files` are its weights.

    `settings` is its config.json as transformers 4 has it; where the folder has none, or another one, it is
    not `configured`. `facts` and `reals` are its numbers by the names of models.yaml, `odd` what the
    checkpoint says that no model of FasterTransformer can have.
    """

    folder: Path
    settings: Mapping[str, Any]
    facts: Mapping[str, int]
    files: tuple[Path, ...]
    configured: bool = True
    reals: Mapping[str, float] = field(default_factory=dict)
    odd: tuple[str, ...] = ()
    format: CheckpointFormat = "huggingface"

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(file.stat().st_size for file in self.files)

    def is_file(self, name: str) -> bool:
        """Return whether all its weights are in a file of that name."""
        return self.files == (self.folder / name,)


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
    other_format = other_formats.describe(folder)
    raise ConfigError(
        f"no checkpoint here: neither {CONFIG} (Hugging Face) nor shard_0 (Mesh Transformer JAX)"
        + (f", but {other_format.what}" if other_format else ""),
        where=str(folder),
        hint=other_format.hint
        if other_format
        else "--checkpoint names the folder that has these files itself",
    )


def family_of(folder: Path, models: ModelsConfig) -> str:
    """Return the family of the checkpoint in `folder`; ConfigError when there is none, or it is unknown."""
    kind = format_of(folder)
    if kind != "huggingface":
        return next(n for n, f in models.families.items() if any(c.format == kind for c in f.converters))
    file = folder / CONFIG
    untrusted.require_links_inside(folder)
    model_type = _model_type(file, _settings(folder))
    fitting = _families_of(model_type, models)
    if not fitting:
        raise ConfigError(
            f"the checkpoint is a {untrusted.plain(model_type)} model, which no family supports",
            where=str(file),
            hint=f"families: {', '.join(models.families)}",
        )
    return fitting[0]


def read(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read the checkpoint in `folder`; ConfigError unless it is of that family and complete."""
    untrusted.require_links_inside(folder)
    return _READERS[converter.format](folder, models, family, converter)


def _read_huggingface(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    file = folder / CONFIG
    written = _settings(folder)
    _require_family(file, _model_type(file, written), models, family)
    described = models.families[family].checkpoint
    files = tuple(weight_files.find(folder))
    for weights in files:
        weight_files.require_whole(weights)
    compared = tied_head.kind(files, described.head) if described.head else "not compared"
    as_written_before = settings.as_version_4(written, compared)
    return Checkpoint(
        folder,
        as_written_before,
        _facts(file, as_written_before, described),
        files,
        configured=as_written_before == written,
        reals=_reals(file, as_written_before, described),
        odd=(
            *_odd_ends(as_written_before, described),
            *_odd_head(as_written_before, described, compared),
            *(tied_head.contradictions(files, described.head) if described.head else ()),
            *settings.rotary_contradictions(written),
            *_adapter(folder),
        ),
    )


def _read_jax(folder: Path, models: ModelsConfig, family: str, converter: Converter) -> Checkpoint:
    """Read a checkpoint of Mesh Transformer JAX: GPT-J 6B, or what a config.json beside its shards says."""
    configured = (folder / CONFIG).is_file()
    config = _settings(folder) if configured else converter.settings
    described = models.families[family].checkpoint
    _require_family(folder / CONFIG, _model_type(folder / CONFIG, config), models, family)
    facts = _facts(folder / CONFIG, config, described)
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
            f"{untrusted.shown(odd[0])} is not part of a checkpoint: these are 0.npz, 1.npz, ...",
            where=str(folder),
            hint=UNPACK_AGAIN,
        )
    names = [f"shard_{i}/{name}" for i in range(SHARDS) for name in longest]
    _require_shapes(folder, names, facts, configured)
    reals = _reals(folder / CONFIG, config, described)
    files = tuple(folder / name for name in names)
    ends = _odd_ends(config, described)
    return Checkpoint(folder, config, facts, files, configured, reals, ends, format="jax")


def _require_shapes(folder: Path, names: Iterable[str], facts: Mapping[str, int], configured: bool) -> None:
    """Raise ConfigError unless the arrays of every core are those of a model with these facts."""
    layers = facts["layers"]
    count = mesh_shards.count(layers)
    hint = (
        "config.json beside the shards must describe them"
        if configured
        else "for another model than GPT-J 6B, put its config.json (of Hugging Face's form) beside the shards"
    )
    for core in mesh_shards.by_core(names):
        place = folder / Path(core[0]).parent
        shapes = [shape for part in core for shape in weight_files.npz_shapes(folder / part)]
        if shapes[:1] == [()]:
            raise ConfigError(
                "the checkpoint begins with the state of its optimizer",
                where=str(place),
                hint="mesh-transformer-jax's slim_model.py leaves that out",
            )
        # The number of the training step may follow.
        if len(shapes) - count not in (0, 1):
            raise ConfigError(
                f"{len(shapes)} arrays, not {count} and the step, of a model with {layers} layers",
                where=str(place),
                hint=hint,
            )
        for tensor, there in zip(mesh_shards.tensors(layers), shapes, strict=False):
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
    """Return config.json; ConfigError when it is none, or begins as only some programs can read it."""
    written = untrusted.json_object(folder / CONFIG, _WHAT, FETCH_AGAIN)
    with (folder / CONFIG).open("rb") as stream:
        if stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            raise ConfigError(
                "a byte order mark in front of the JSON, which transformers does not read",
                where=str(folder / CONFIG),
                hint="save it as UTF-8 without that mark",
            )
    return written


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


def _facts(file: Path, config: Mapping[str, Any], described: CheckpointConfig) -> dict[str, int]:
    named = settings.with_own_names(config, described.aliases)
    return {name: _fact(file, named, described, name) for name in described.facts}


def _fact(file: Path, config: Mapping[str, Any], described: CheckpointConfig, name: str) -> int:
    source = described.facts[name]
    alternatives = source if isinstance(source, tuple) else (source,)

    def number_of(key: str) -> int:
        value = settings.value(config, key)
        if isinstance(value, list) and name in TOKENS:  # `_odd_ends` is about several
            value = value[0]
        if isinstance(value, str) and key in described.texts:
            return described.texts[key][value]
        if value is None:
            raise KeyError(key)
        return (
            int(value) if isinstance(value, bool) else untrusted.whole_number(value, key, file, FETCH_AGAIN)
        )

    for alternative in alternatives:
        try:
            number = formula.value(alternative, number_of)
        except KeyError:  # no such key, null, or a text without a number
            continue
        low = 0 if name in FROM_ZERO else 1
        number = untrusted.whole_number(number, name, file, FETCH_AGAIN, low=low)
        return min(number, described.at_most.get(name, number))
    raise ConfigError(
        f"config.json has no {name} (as {' or '.join(map(str, alternatives))})",
        where=str(file),
        hint="the server cannot be configured without it; add it to a copy of the checkpoint",
    )


def _reals(file: Path, config: Mapping[str, Any], described: CheckpointConfig) -> dict[str, float]:
    named = settings.with_own_names(config, described.aliases)
    return {name: _real(file, named, keys) for name, keys in described.reals.items()}


def _real(file: Path, config: Mapping[str, Any], alternatives: Iterable[str | float]) -> float:
    for each in alternatives:
        value = settings.value(config, each) if isinstance(each, str) else each
        if value is None:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool) and MIN < value < MAX:
            return float(value)
        raise ConfigError(
            f"{each} is {untrusted.shown(value)}, not a number above 0", where=str(file), hint=FETCH_AGAIN
        )
    raise AssertionError("the last alternative is a number")  # config/families.py


def _odd_ends(config: Mapping[str, Any], described: CheckpointConfig) -> tuple[str, ...]:
    keys = described.facts.get("end", ())
    listed = [
        (key, settings.value(config, str(key))) for key in (keys if isinstance(keys, tuple) else (keys,))
    ]
    return tuple(
        f"{key} names {len(value)} tokens that end an answer, {untrusted.shown(value)}; FasterTransformer "
        "knows one: keep that one in a copy of config.json, clients can send the others as stop words"
        for key, value in listed
        if isinstance(value, list) and len(value) > 1
    )


def _adapter(folder: Path) -> Iterable[str]:
    """Yield why the weights are not the whole model: transformers adds an adapter that lies beside them.

    With peft installed (from_pretrained calls find_adapter_config_file).
    """
    if (folder / other_formats.ADAPTER).is_file():
        yield (
            f"{other_formats.ADAPTER} beside the weights: the adapter would be lost. Merge it into them with "
            "peft's merge_and_unload, or remove it from a copy where it does not belong to the model"
        )


def _odd_head(config: Mapping[str, Any], described: CheckpointConfig, compared: HeadKind) -> Iterable[str]:
    """Yield what contradicts the tensors, or cannot be compared with them."""
    if described.head is None:
        return
    is_tied = settings.value(config, settings.TIED)
    if (described.head.tied if is_tied is None else is_tied) and compared == "own":
        yield (
            f"{described.head.names[0]} is not the table of embeddings, {settings.TIED} says that they are "
            "one: save the checkpoint again with the value that is true"
        )
    elif compared == "not compared" and settings.SCALED in config:
        yield (
            f"what transformers 5 says of {settings.TIED} must be compared with the weights: save them as "
            "safetensors"
        )

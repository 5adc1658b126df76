"""Converted weights: a folder `<n>-gpu`, and the config.ini in which a converter describes the model."""

from __future__ import annotations

import configparser
import contextlib
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ftbuild.errors import ConfigError
from ftbuild.host import files, reading
from ftbuild.models import untrusted

FILE = "config.ini"
# More than any of these models is split over.
MAX_GPUS = 1024
_FOLDER = re.compile(r"([1-9][0-9]{0,3})-gpu")
_WHOLE = re.compile(r"-?[0-9]{1,10}")
# A section of config.ini -> the family, a folder of upstream's all_models (FT v5.3 *TritonModel.cc). T5 of
# the sample stack has one section for encoder and decoder. An encoder without a decoder comes with an empty
# section for it (FT v5.3 huggingface_t5_ckpt_convert.py:166).
SECTIONS = {
    "gpt": "gpt", "gptj": "gptj", "gptneox": "gptneox", "decoder": "t5", "t5": "t5", "bert": "bert",
    "encoder": "t5-encoder",
}  # fmt: skip
# Families of which some models or all have rotary positions, and so no table of them.
_ROTARY = frozenset({"gpt", "gptj", "gptneox"})
_WORDS = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}
_CONVERT = "run invoke convert again, with the release that will serve the weights"


@dataclass(frozen=True)
class ConvertedModel:
    """Weights split over `tensor_para` GPUs, with the values of config.ini."""

    folder: Path
    family: str
    tensor_para: int
    values: Mapping[str, str]

    @property
    def layers(self) -> int:
        """Transformer layers; of T5, those of the decoder."""
        return self.number("decoder_layers")

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table; 0 when config.ini has no number."""
        return self._at("vocab_size") if "vocab_size" in self.values else 0

    def number(self, parameter: str) -> int:
        """Return the value of a parameter of release 1.1's config.pbtxt for these weights.

        Raises ConfigError when config.ini lacks it: the server would take upstream's example value, or end
        (BE v1.1 libfastertransformer.cc:158-175; FT 3rdparty/INIReader.h, Get without a default). The same
        for a number that no model can have.
        """
        low = 0 if parameter in _FROM_ZERO else 1
        for key in _KEYS[parameter]:
            if self.values.get(key, "None") != "None":
                return self._at(key, low)
        try:
            derived = _DERIVED[parameter](self)
        except KeyError:
            raise ConfigError(
                f"config.ini has no {parameter} (as {' or '.join(_KEYS[parameter])})",
                where=str(self.folder / FILE),
                hint=_CONVERT,
            ) from None
        if derived < low:
            raise ConfigError(f"{parameter} would be {derived}", where=str(self.folder / FILE), hint=_CONVERT)
        return derived

    def token(self, parameter: str) -> int | None:
        """Return the token that a parameter of release 1.1 names, None where config.ini lacks it."""
        named = any(self.values.get(key, "None") != "None" for key in _KEYS[parameter])
        return self.number(parameter) if named else None

    def parameters(self, names: Iterable[str]) -> dict[str, str]:
        """Return the values of those `names` that depend on the weights."""
        return {name: str(self.number(name)) for name in names if name in _KEYS}

    def fact(self, name: str) -> int:
        """Return a number by its name in models.yaml: `hidden` or `inner`; ConfigError as `number`."""
        return math.prod(self.number(parameter) for parameter in _FACTS[name])

    def at_least_one(self, key: str) -> int:
        """Return the number of a key of config.ini; KeyError without the key, ConfigError for no number."""
        return self._at(key, 1)

    def _at(self, key: str, low: int = 0) -> int:
        written = self.values[key]
        with contextlib.suppress(ValueError):
            if low <= (number := whole_number(written)) <= untrusted.MAX:
                return number
        raise ConfigError(
            f"{key} is {untrusted.shown(written)}, not a whole number from {low} to {untrusted.MAX}",
            where=str(self.folder / FILE),
            hint=_CONVERT,
        )


# Keys of config.ini for the rows of a table of positions; a model with rotary embeddings has none.
POSITIONS = ("max_pos_seq_len", "n_positions")
# The key for what config.json says of a model that computes its positions. FasterTransformer has none.
CONTEXT = "max_position_embeddings"
# config.json's keys for it (transformers: GPT-NeoX and LLaMA; GPT-J and CodeGen).
_CONTEXTS = (CONTEXT, "n_positions")
# Parameter of config.pbtxt in release 1.1 (BE v1.1 libfastertransformer.cc:212-279) -> keys of config.ini, of
# which the first that is there counts: the names of FT 5.2 and later, then what FT 5.0's GPT converter takes
# from config.json (FT v5.0 huggingface_gpt_convert.py:112-117), then T5's (FT v5.3 T5TritonModel.cc:114).
_KEYS: Mapping[str, tuple[str, ...]] = {
    "head_num": ("head_num", "n_head", "num_heads"),
    "size_per_head": ("size_per_head", "d_kv"),
    "inter_size": ("inter_size", "n_inner", "d_ff"),
    "decoder_layers": ("num_layer", "n_layer", "num_layers"),
    "vocab_size": ("vocab_size",),
    "start_id": ("start_id", "bos_token_id", "decoder_start_token_id"),
    "end_id": ("end_id", "eos_token_id"),
    # Rows of GPT's position table.
    "max_seq_len": POSITIONS,
    "rotary_embedding": ("rotary_embedding", "rotary_dim"),
}
_FACTS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("head_num", "size_per_head"),
    "inner": ("inter_size",),
}
_FROM_ZERO = frozenset({"start_id", "end_id", "rotary_embedding"})
_DERIVED: Mapping[str, Callable[[ConvertedModel], int]] = {
    "size_per_head": lambda s: s.at_least_one("n_embd") // s.number("head_num"),
    "inter_size": lambda s: (
        4 * s.at_least_one("n_embd")
    ),  # GPT-2's config.json: n_inner None means 4 x n_embd
    # GPT-J has no such table and adjusts its buffers to the request (FT v5.0 GptJTritonModel.cc:150), so the
    # value is printed and no more; this is what GPT-J was trained with.
    "max_seq_len": lambda s: {"gptj": 2048}[s.family],
}


def find(folder: Path, gpus: int | None = None) -> ConvertedModel:
    """Return the weights in `folder`, which is `<n>-gpu` itself or holds it.

    Raises ConfigError when there are none, none for `gpus` GPUs, or several to choose from.
    """
    if not folder.is_dir():
        raise ConfigError(
            "the folder of the weights does not exist", where=str(folder), hint="check --weights"
        )
    if (folder / FILE).is_file():
        models = [read(folder)]
    else:
        models = [read(inner.parent) for inner in sorted(folder.glob(f"*-gpu/{FILE}"))]
    if not models:
        raise ConfigError(
            f"no converted weights here: neither {FILE} nor <n>-gpu/{FILE}",
            where=str(folder),
            hint="invoke convert makes them from a checkpoint",
        )
    fitting = [model for model in models if gpus in (None, model.tensor_para)]
    if len(fitting) == 1:
        return fitting[0]
    counts = ", ".join(str(model.tensor_para) for model in models)
    raise ConfigError(
        f"the weights are for {counts} GPUs" + (f", not {gpus}" if gpus else ": which?"),
        where=str(folder),
        hint=f"invoke convert --gpus {gpus}, or the number that is there" if gpus else "choose with --gpus",
    )


def read(folder: Path) -> ConvertedModel:
    """Read config.ini in `folder`; ConfigError when it is broken or contradicts the folder's name."""
    file = folder / FILE
    config = _parsed(file)
    there = [name for name in SECTIONS if config.has_section(name)]
    section = next((name for name in there if config.options(name)), next(iter(there), None))
    if section is None:
        raise ConfigError(
            f"config.ini has none of the sections {', '.join(SECTIONS)}, "
            f"but {untrusted.shown(config.sections())}",
            where=str(file),
            hint=_CONVERT,
        )
    values = {key: value or "" for key, value in config.items(section)}
    return ConvertedModel(folder, SECTIONS[section], _tensor_para(folder, values), values)


def all_values(file: Path) -> dict[str, str]:
    """Return every value of a config.ini, by section.key; ConfigError when it is broken."""
    config = _parsed(file)
    return {f"{name}.{key}": value or "" for name in config.sections() for key, value in config.items(name)}


def added_context(folder: Path, settings: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Return what config.ini in `folder` lacks of the positions that config.json's `settings` name.

    Nothing where the model has a table of positions, is an encoder with a decoder, whose positions are
    relative, or the number is none. Raises ConfigError as `read`.
    """
    file = folder / FILE
    config = _parsed(file) if file.is_file() else _parser()
    section = next((name for name in SECTIONS if config.has_section(name) and config.options(name)), None)
    if section is None or SECTIONS[section] not in _ROTARY:
        return {}
    if any(config.has_option(section, key) for key in (*POSITIONS, CONTEXT)):
        return {}
    named = (settings.get(key) for key in _CONTEXTS)
    positions = next(
        (number for number in named if type(number) is int and 0 < number <= untrusted.MAX), None
    )
    return {section: {CONTEXT: str(positions)}} if positions else {}


def context(model: ConvertedModel) -> int | None:
    """Return the context length, None where the weights do not say it.

    Raises ConfigError for what is not a number.
    """
    there = (key for key in (*POSITIONS, CONTEXT) if model.values.get(key, "None") != "None")
    key = next(there, None)
    return model.at_least_one(key) if key else None


def has_experts(model: ConvertedModel) -> bool:
    """Return whether layers of these weights are mixtures of experts.

    The one converter that makes such layers lists them in a section of its own (FT v5.3
    megatron_gpt_moe_ckpt_convert.py:576-611).
    """
    written = all_values(model.folder / FILE).get("structure.moe_layers", "")
    return any(sign.isdigit() for sign in written)


def add(folder: Path, added: Mapping[str, Mapping[str, str]]) -> None:
    """Add values to config.ini in `folder`, or make it; ConfigError when the one that is there is broken.

    Raises FileExistsError when something else has its name.
    """
    file = folder / FILE
    config = _parsed(file) if file.is_file() else _parser()
    config.read_dict(added)
    content = io.StringIO()
    config.write(content)
    if file.is_file():
        file.unlink()
    files.write_new(file, content.getvalue())


def whole_number(text: str) -> int:
    """Return the whole number that a text is; ValueError for anything more or less."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{untrusted.shown(text)} is not a whole number")
    return int(text)


def number(text: str) -> int:
    """Return the number or the switch (true: 1) that a text is; ValueError for anything else.

    Words as FasterTransformer reads them (FT v5.3 3rdparty/INIReader.h, GetBoolean).
    """
    return _WORDS[text.lower()] if text.lower() in _WORDS else whole_number(text)


def _parsed(file: Path) -> configparser.ConfigParser:
    content = reading.read_text(file, max_bytes=untrusted.SETTINGS_BYTES)
    config = _parser()
    try:
        config.read_string(content, str(file))
    # AttributeError: a key without a value that is continued on the next line (Python 3.11, _read).
    except (configparser.Error, AttributeError) as broken:
        first = untrusted.sentence(broken)
        raise ConfigError(f"config.ini cannot be read: {first}", where=str(file), hint=_CONVERT) from broken
    return config


def _parser() -> configparser.ConfigParser:
    # Values hold whatever config.json held: no interpolation, and a key may come twice or without a value.
    return configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)


def check_pipeline(model: ConvertedModel, pipeline_para: int) -> None:
    """Raise ConfigError unless the layers can be split evenly over the pipeline stages.

    Each stage runs ceil(layers / stages) layers but holds a cache for floor(layers / stages) of them
    (FT v5.3 GptJDecoder.cc:96, GptJ.cc:88).
    """
    if not 0 < pipeline_para <= MAX_GPUS:
        raise ConfigError(
            f"{pipeline_para} is not a number of pipeline stages",
            where="--pipeline",
            hint=f"1 to {MAX_GPUS}",
        )
    if model.layers % pipeline_para:
        raise ConfigError(
            f"{model.layers} layers cannot be split evenly over {pipeline_para} pipeline stages",
            where=str(model.folder / FILE),
            hint="--pipeline must divide the number of layers",
        )


def _tensor_para(folder: Path, values: Mapping[str, str]) -> int:
    """Return the GPUs in the folder's name, which the backend looks for; config.ini must agree."""
    named = _FOLDER.fullmatch(folder.resolve().name)
    if named is None:
        raise ConfigError(
            "the folder's name lacks the number of GPUs that the weights are for",
            where=str(folder),
            hint="name it as the converter did: <n>-gpu",
        )
    written = values.get("tensor_para_size") or named[1]
    if written != named[1]:
        raise ConfigError(
            f"the folder's name has {named[1]} GPUs, its config.ini {untrusted.plain(written)}",
            where=str(folder),
            hint="give the folder its old name back: <n>-gpu",
        )
    return int(named[1])

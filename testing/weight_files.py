"""Weight files for a config.ini: names and sizes as models.yaml has them, without content.

They are sparse, so that a model of 6 billion parameters takes no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ftbuild.config import loader
from ftbuild.config.checkpoints import Converter
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, converters, loading, weights

# What converters write into config.ini besides the facts that models.yaml names (FT v5.3
# huggingface_bloom_convert.py:282-304, huggingface_opt_convert.py:198-201; llama_weights.py).
_BESIDES: Mapping[str, Mapping[str, object]] = {
    "gpt": {"gpt.activation_type": "Gelu", "gpt.layernorm_type": "pre_layernorm"},
    "opt": {
        "gpt.activation_type": "Relu", "gpt.layernorm_eps": "1e-5", "gpt.layernorm_type": "pre_layernorm",
    },
    "bloom": {
        "gpt.has_positional_encoding": False, "gpt.has_pre_decoder_layernorm": True,
        "gpt.has_post_decoder_layernorm": True, "gpt.use_attention_linear_bias": True,
        "gpt.activation_type": "Gelu", "gpt.layernorm_type": "pre_layernorm",
    },
    "mpt": {"gpt.activation_type": "Gelu", "gpt.layernorm_type": "pre_layernorm"},
    "gptj": {"gptj.rotary_embedding": 8},
    "codegen": {"gptj.rotary_embedding": 8},
    "gptneox": {"gptneox.rotary_embedding": 4},
    "llama": {
        "gptneox.rotary_embedding": 16, "gptneox.use_gptj_residual": 0, "gptneox.use_rms_norm": 1,
        "gptneox.activation_type": "gated-silu",
    },
    "bert": {"bert.hidden_size": 64, "bert.layer_norm_eps": "1e-12", "bert.activation_type": "gelu"},
}  # fmt: skip
FACTS = {
    "layers": 2, "decoder_layers": 3, "heads": 4, "kv_heads": 4, "head_size": 16, "hidden": 64, "inner": 256,
    "positions": 32, "types": 2, "vocabulary": 96, "buckets": 32, "gated": 1, "rotary": 8, "parallel": 1,
    "norm_first": 1, "start": 94, "end": 95, "scaled": 1,
}  # fmt: skip
REALS = {"epsilon": 1e-5}


@dataclass(frozen=True)
class Model:
    """A small model of a family, as one of its converters would leave it."""

    family: str
    converter: Converter
    gpus: int = 1
    data_type: str = "fp32"
    changed: Mapping[str, int] | None = None

    @property
    def facts(self) -> dict[str, int]:
        """The dimensions."""
        fixed = {name: int(of) for name, of in self.converter.fixed.items() if str(of).isdigit()}
        return {**FACTS, **(self.changed or {}), **fixed}

    def values(self) -> dict[str, str]:
        """Return its config.ini, by section.key."""
        found: dict[str, object] = {}
        for fact, source in self.converter.facts.items():
            keys = source.split(" * ")
            found[keys[-1]] = self.facts[fact]
            if len(keys) == 2:
                found[keys[1]] = self.facts[fact] // self.facts["heads"]
        section = self.converter.data_type.partition(".")[0]
        if section in ("encoder", "decoder"):
            named = {key.partition(".")[2]: value for key, value in found.items() if "structure" not in key}
            found |= {
                f"{part}.{name}": value for part in ("encoder", "decoder") for name, value in named.items()
            }
            found["encoder.num_layers"] = self.facts["layers"]
            found["decoder.num_layers"] = self.facts["decoder_layers"]
            found |= {f"{part}.weight_data_type": self.data_type for part in ("encoder", "decoder")}
            found |= {f"{part}._name_or_path": "t5" for part in ("encoder", "decoder")}
            found |= {"encoder.feed_forward_proj": "relu", "structure.position_embedding_type": "relative"}
        else:
            found |= {f"{section}.model_name": self.family}
        found |= _BESIDES.get(self.family, {})
        converter = converters.with_reals(self.converter, REALS)
        for name, keys_of in weights.added_config(converter, self.facts).items():
            found |= {f"{name}.{key}": value for key, value in keys_of.items()}
        found[self.converter.data_type] = self.data_type
        return {key: str(value) for key, value in found.items()}

    def write(self, folder: Path) -> Path:
        """Write it below `folder`; return `<n>-gpu`."""
        place = folder / weights.folder_name(self.gpus)
        place.mkdir(parents=True)
        write_config(place, self.values())
        sizes = weights.expected(self.converter, self.facts, self.gpus, self.data_type)
        sparse(place, sizes.items())
        return place


def write_config(place: Path, values: Mapping[str, str]) -> None:
    """Write config.ini into a folder: values by section.key."""
    sections: dict[str, list[str]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, [f"[{section}]"]).append(f"{name} = {value}")
    text = "\n".join(line for lines in sections.values() for line in lines)
    (place / config_ini.FILE).write_text(text + "\n")


def sparse(place: Path, sizes: Iterable[tuple[str, int]]) -> None:
    """Make files of those names and bytes."""
    for name, size in sizes:
        with (place / name).open("wb") as file:
            file.truncate(size)


def complete(folder: Path) -> Path:
    """Add what the backend reads to `<n>-gpu`, as far as its config.ini tells; return the folder."""
    try:
        model = config_ini.read(folder)
    except ConfigError:
        return folder
    values = config_ini.all_values(folder / config_ini.FILE)
    described = loader.own_models().families[model.family].loading
    assert described
    for part in described.parts:
        known = loading.numbers(part, values, model.tensor_para)
        item_type = loading.data_type(part, values)
        for files in loading.expected(part, known, item_type) if item_type else ():
            wanted = files.file
            sparse(folder, ((n, wanted.size) for n in files.names(model.tensor_para) if wanted.required))
    return folder

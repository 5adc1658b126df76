"""The tensors that a checkpoint must have, by family: what transformers, or the converter itself, looks for.

Without some of them a converter ends late: transformers first makes the whole model, and draws what it misses
at random. Only names are read here: headers of safetensors, and the texts in a pickle, which is not run.
"""

from __future__ import annotations

import itertools
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ftbuild.config.checkpoints import CheckpointConfig
from ftbuild.config.families import ModelsConfig
from ftbuild.models import settings, untrusted, weight_files
from ftbuild.models.checkpoint import Checkpoint

_COUNTER = re.compile(r"{(\w+)}")
_SHOWN = 5
# Of `neutral` in models.yaml: whatever config.json says.
_ANY = "*"
_BOTH = (".weight", ".bias")
# What norms have in checkpoints that came from TensorFlow; transformers renames them.
_OLDER = {".gamma": ".weight", ".beta": ".bias"}
_SAFETENSORS = ".safetensors"
# How a pickle names the storage of int8; masks are uint8.
_INT8 = "torch CharStorage"
_IN_A_LAYER = re.compile(r"\.[0-9]+\.")
# What older versions saved of masks and positions, which is computed; and what the first T5s have, which no
# version of transformers reads.
_BUFFER = re.compile(
    r"(?:\.(?:attn|attention)\.(?:bias|masked_bias|causal_mask)|inv_freq"
    r"|EncDecAttention\.relative_attention_bias\.weight)$"
)
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, ValueError, OverflowError, EOFError, KeyError, IndexError,
    RuntimeError, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True)
class _Needed:
    """Patterns of names: `.*` stands for weight and bias, {fact} counts, `|` parts names of one tensor.

    `prefix` may be in front of any of them but those `outside`, and may be absent. `when` are patterns for a
    switch that is on.
    """

    names: tuple[str, ...]
    prefix: str = ""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outside: tuple[str, ...] = ()


def _below(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names)


def _gptj(*attention: str) -> _Needed:
    """Return what GPT-J has, whose converter knows its names with this prefix alone."""
    layer = _below("h.{layers}.", "ln_1.*", "mlp.fc_in.*", "mlp.fc_out.*", "attn.out_proj.weight", *attention)
    return _Needed((*_below("transformer.", "wte.weight", "ln_f.*", *layer), "lm_head.*"))


def _t5(stack: str, layers: str, *more: tuple[int, str]) -> _Needed:
    """Return what a stack of T5 has; `more` are its attentions and norms after the first, by sublayer."""
    block = f"{stack}.block.{{{layers}}}.layer."
    last = 1 + len({number for number, _ in more})
    attention = _below("SelfAttention.", *(f"{name}.weight" for name in "qkvo"))
    names = (
        f"{stack}.final_layer_norm.weight",
        f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        *_below(f"{block}0.", "layer_norm.weight", *attention),
        *(f"{block}{number}.{name}.weight" for number, name in more),
        *_below(f"{block}{last}.", "layer_norm.weight", "DenseReluDense.wo.weight"),
    )
    inside = f"{block}{last}.DenseReluDense."
    gates = {"gated": _below(inside, "wi_0.weight", "wi_1.weight"), "plain": (f"{inside}wi.weight",)}
    return _Needed(names, when=gates)


def _joined(table: str, *stacks: _Needed, head: str = "") -> _Needed:
    when = {key: tuple(name for each in stacks for name in each.when[key]) for key in stacks[0].when}
    return _Needed(
        (table, *(name for each in stacks for name in each.names)),
        when={**when, **({"own head": (head,)} if head else {})},
    )


_CROSS = tuple((1, f"EncDecAttention.{name}") for name in "qkvo")
_ENCODER, _DECODER = _t5("encoder", "layers"), _t5("decoder", "decoder_layers", (1, "layer_norm"), *_CROSS)
_NEOX_LAYER = (
    "input_layernorm.*",
    "post_attention_layernorm.*",
    "attention.query_key_value.*",
    "attention.dense.*",
    "mlp.dense_h_to_4h.*",
    "mlp.dense_4h_to_h.*",
)
_BLOOM_LAYER = (name.replace("attention.", "self_attention.", 1) if name.startswith("attention.") else name
                for name in _NEOX_LAYER)  # fmt: skip
# transformers v4.46.3 modeling_<family>.py; the converters of FT v5.3 that read files themselves.
_FAMILIES: Mapping[str, _Needed] = {
    "gpt": _Needed(
        (
            *("wte.weight", "wpe.weight", "ln_f.*"),
            *_below("h.{layers}.", "ln_1.*", "ln_2.*", "attn.c_attn.*", "attn.c_proj.*"),
            *_below("h.{layers}.mlp.", "c_fc.*", "c_proj.*"),
        ),
        "transformer.",
    ),
    "opt": _Needed(
        (
            *("decoder.embed_tokens.weight", "decoder.embed_positions.weight"),
            *_below("decoder.layers.{layers}.", "self_attn_layer_norm.*", "final_layer_norm.*"),
            *_below("decoder.layers.{layers}.self_attn.", "q_proj.*", "k_proj.*", "v_proj.*", "out_proj.*"),
            *_below("decoder.layers.{layers}.", "fc1.*", "fc2.*"),
        ),
        "model.",
        {
            "norm_first": ("decoder.final_layer_norm.*",),
            "projected": _below("decoder.", "project_in.weight", "project_out.weight"),
        },
    ),
    "bloom": _Needed(
        (
            *("word_embeddings.weight", "word_embeddings_layernorm.*", "ln_f.*"),
            *_below("h.{layers}.", *_BLOOM_LAYER),
        ),
        "transformer.",
    ),
    "mpt": _Needed(
        (
            *_below("transformer.", "wte.weight", "norm_f.weight"),
            *_below("transformer.blocks.{layers}.", "norm_1.weight", "norm_2.weight"),
            *_below("transformer.blocks.{layers}.attn.", "Wqkv.weight", "out_proj.weight"),
            *_below("transformer.blocks.{layers}.ffn.", "up_proj.weight", "down_proj.weight"),
        )
    ),
    "gptj": _gptj(*(f"attn.{name}_proj.weight" for name in "qkv")),
    "codegen": _gptj("attn.qkv_proj.weight"),
    "gptneox": _Needed(
        ("embed_in.weight", "final_layer_norm.*", *_below("layers.{layers}.", *_NEOX_LAYER)),
        "gpt_neox.",
        outside=("embed_out.weight",),
    ),
    "t5": _joined(
        "shared.weight|encoder.embed_tokens.weight|decoder.embed_tokens.weight",
        _ENCODER,
        _DECODER,
        head="lm_head.weight",
    ),
    "t5-encoder": _joined("shared.weight|encoder.embed_tokens.weight", _ENCODER),
    "llama": _Needed(
        (
            *("model.embed_tokens.weight", "model.norm.weight"),
            *_below("model.layers.{layers}.", "input_layernorm.weight", "post_attention_layernorm.weight"),
            *_below("model.layers.{layers}.self_attn.", *(f"{name}_proj.weight" for name in "qkvo")),
            *_below(
                "model.layers.{layers}.mlp.", *(f"{name}_proj.weight" for name in ("gate", "up", "down"))
            ),
        ),
        when={"own head": ("lm_head.weight",)},
    ),
    "bert": _Needed(
        (
            *(f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")),
            "embeddings.LayerNorm.*",
            *(f"encoder.layer.{{layers}}.attention.self.{name}.*" for name in ("query", "key", "value")),
            *_below("encoder.layer.{layers}.attention.output.", "dense.*", "LayerNorm.*"),
            *_below(
                "encoder.layer.{layers}.", "intermediate.dense.*", "output.dense.*", "output.LayerNorm.*"
            ),
        ),
        "bert.",
    ),
}


@dataclass(frozen=True)
class Compared:
    """What is wrong with the names of a checkpoint's tensors; a sentence about those that nothing reads."""

    faults: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def compare(checkpoint: Checkpoint, models: ModelsConfig, family: str) -> Compared:
    """Read the names of a checkpoint's tensors, once; nothing is wrong where they cannot be read."""
    needed, described = _known(checkpoint, models, family), models.families[family].checkpoint
    by_file = _by_file(checkpoint) if needed else {}
    if needed is None or not by_file:
        return Compared()
    there = set().union(*by_file.values())
    expected = list(_expanded(needed, checkpoint, described))
    faults = (*_quantized(by_file), *_twice(by_file), *_missing(needed, expected, there))
    # Texts of a pickle are more than names of tensors.
    plain = all(file.endswith(_SAFETENSORS) for file in by_file)
    return Compared(faults, tuple(_unused(needed, expected, there, family)) if plain else ())


def _unused(
    needed: _Needed, expected: Iterable[tuple[str, ...]], there: Iterable[str], family: str
) -> Iterator[str]:
    """Yield a sentence about tensors of layers that nothing reads: more layers, biases, adapters.

    transformers leaves out the same, and says so while it loads.
    """
    known = {name for names in expected for name in names}
    if not (plain := {_renamed(name).removeprefix(needed.prefix) for name in there}) & known:
        return
    left = sorted(name for name in plain - known if _IN_A_LAYER.search(name) and not _BUFFER.search(name))
    if family == "t5-encoder":
        left = [name for name in left if name.startswith("encoder.")]
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        yield (
            "the checkpoint has tensors that a model with this config.json does not use, neither in "
            f"transformers: {', '.join(map(untrusted.plain, left[:_SHOWN]))}{more}"
        )


def _known(checkpoint: Checkpoint, models: ModelsConfig, family: str) -> _Needed | None:
    """Return what a family's checkpoints have; None where that is not known.

    To the models of the sample no key of config.json matters but sizes, and neither do most tensors. Another
    configuration may not read all numbers by which layers are counted.
    """
    needed = _FAMILIES.get(family)
    if needed is None or _ANY in models.neutral or checkpoint.format != "huggingface":
        return None
    switched = (name for names in needed.when.values() for name in names)
    counters = {each for name in (*needed.names, *switched) for each in _COUNTER.findall(name)}
    return needed if counters <= checkpoint.facts.keys() else None


def _by_file(checkpoint: Checkpoint) -> dict[str, frozenset[str]]:
    """Return the names in each file; none where those of some file cannot be read."""
    by_file = {file.name: _names(file) for file in checkpoint.files}
    whole = {file: names for file, names in by_file.items() if names is not None}
    return whole if len(whole) == len(by_file) else {}


def _quantized(by_file: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield a file with int8, which every converter would take for plain numbers."""
    for file, texts in by_file.items():
        if not file.endswith(_SAFETENSORS) and _INT8 in texts:
            yield f"{file} has tensors of int8: the weights are quantized"


def _twice(by_file: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield a tensor that two files have: which one counts depends on who reads them."""
    first: dict[str, str] = {}
    for file, names in by_file.items():
        if not file.endswith(_SAFETENSORS):  # texts of a pickle are more than names of tensors
            continue
        if again := sorted(names & first.keys()):
            yield f"{untrusted.shown(again[0])} is in {first[again[0]]} and in {file}, and only one can count"
            return
        first |= dict.fromkeys(names, file)


def _missing(needed: _Needed, expected: Sequence[tuple[str, ...]], there: Iterable[str]) -> Iterator[str]:
    renamed = {_renamed(name) for name in there}
    alike = renamed | {name.removeprefix(needed.prefix) for name in renamed}
    lacking = [each for each in expected if not any(name in alike for name in each)]
    if not lacking:
        return
    whole = (each[0] if each[0] in needed.outside else f"{needed.prefix}{each[0]}" for each in lacking)
    shown = ", ".join(itertools.islice(whole, _SHOWN))
    more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    wrapped = next((name for name in sorted(renamed) if name.endswith(f".{lacking[0][0]}")), None)
    elsewhere = (
        f" (it has {untrusted.shown(wrapped)}: save the model without what wraps it)" if wrapped else ""
    )
    yield f"{len(lacking)} of {len(expected)} tensors of the model are missing: {shown}{more}{elsewhere}"


def _renamed(name: str) -> str:
    older = next((ending for ending in _OLDER if name.endswith(ending)), None)
    return name.removesuffix(older) + _OLDER[older] if older else name


def _expanded(
    needed: _Needed, checkpoint: Checkpoint, described: CheckpointConfig
) -> Iterator[tuple[str, ...]]:
    """Yield the names of each tensor."""
    facts = checkpoint.facts
    on = {name for name, switch in _switches(checkpoint, described).items() if switch}
    switched = (name for key in needed.when if key in on for name in needed.when[key])
    for pattern in (*needed.names, *needed.outside, *switched):
        counters = _COUNTER.findall(pattern)
        for counts in itertools.product(*(range(facts[counter]) for counter in counters)):
            name = pattern.format(**dict(zip(counters, counts, strict=True)))
            endings = _BOTH if name.endswith(".*") else ("",)
            yield from (tuple(f"{name.removesuffix('.*')}{ending}".split("|")) for ending in endings)


def _switches(checkpoint: Checkpoint, described: CheckpointConfig) -> dict[str, bool]:
    facts, written = checkpoint.facts, checkpoint.settings
    tied = settings.value(written, settings.TIED)
    gated = bool(facts.get("gated"))
    width = settings.value(written, "word_embed_proj_dim")
    return {
        "norm_first": bool(facts.get("norm_first")),
        "gated": gated,
        "plain": not gated,
        "projected": width is not None and width != facts.get("hidden"),
        "own head": described.head is not None and not (described.head.tied if tied is None else tied),
    }


def _names(file: Path) -> frozenset[str] | None:
    """Return the names in a file of weights, of a pickle all its texts; None where they cannot be read."""
    if file.suffix == _SAFETENSORS:
        header, _ = weight_files.safetensors_header(file)
        return frozenset(header) - {weight_files.METADATA}
    try:
        with zipfile.ZipFile(file) as archive:
            inside = min((name for name in archive.namelist() if name.endswith("data.pkl")), key=len)
            if archive.getinfo(inside).file_size > untrusted.JSON_BYTES:
                return None
            content = archive.read(inside)
        return frozenset(text for _, text, _ in pickletools.genops(content) if isinstance(text, str))
    except _UNREADABLE:  # what torch before 1.6 wrote, too: its pickle has no length
        return None

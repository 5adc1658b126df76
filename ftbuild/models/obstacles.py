"""Reasons why a checkpoint cannot be converted, or would be served with other answers than transformers'.

Everything in a config.json that changes what is computed is carried over, or has a value with which
FasterTransformer computes, or is refused by its name here. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

from ftbuild.config.checkpoints import CheckpointConfig, Converter
from ftbuild.config.families import ModelsConfig
from ftbuild.models import formula, generation, rotation, settings, untrusted
from ftbuild.models.checkpoint import CONFIG, TOKENS, Checkpoint
from ftbuild.models.weight_files import FETCH_AGAIN

# Says that the checkpoint has code of its own. Users who know that it computes the same may say so.
CODE = "auto_map"
_SHOWN = 8


def find(
    checkpoint: Checkpoint,
    models: ModelsConfig,
    family: str,
    converter: Converter,
    version: str,
    gpus: int,
    ignored: Collection[str] = (),
) -> list[str]:
    """Return the reasons not to convert for that many GPUs of FasterTransformer `version`, if any.

    `ignored` are keys of config.json that the user says change nothing; of known keys they are not believed.
    """
    described = models.families[family].checkpoint
    return [
        *checkpoint.odd,
        *settings.contradictions(checkpoint.settings, described),
        *_generation(checkpoint, models, family, converter),
        *_assumptions(checkpoint.settings, models, described, converter, ignored),
        *_unknown(checkpoint.settings, models, described, converter, ignored),
        *_fixed(checkpoint.facts, converter),
        *_sizes(checkpoint, described, version),
        *_tokens(checkpoint.facts),
        *_rotation(checkpoint, models, family),
        *(
            f"{checkpoint.facts[fact]} {fact} cannot be split over {gpus} GPUs"
            for fact in described.splits
            if gpus < 1 or checkpoint.facts[fact] % gpus
        ),
    ]


def _generation(
    checkpoint: Checkpoint, models: ModelsConfig, family: str, converter: Converter
) -> Iterator[str]:
    """Yield how transformers would generate other answers; a model of vectors generates none."""
    if models.families[family].vectors is None:
        every = settings.assumed(models, models.families[family].checkpoint, converter)
        assumed = {key for known in every for key in known}
        yield from generation.obstacles(checkpoint.folder, checkpoint.settings, assumed)


def _assumptions(
    written: Mapping[str, Any],
    models: ModelsConfig,
    described: CheckpointConfig,
    converter: Converter,
    ignored: Collection[str],
) -> Iterator[str]:
    every = settings.assumed(models, described, converter)
    merged = {key: known for assumed in every for key, known in assumed.items()}
    yield from settings.nulls(written, described, merged)
    for assumed in every:
        for key, known in assumed.items():
            value = settings.value(written, key)
            if value in known or (key.partition(".")[0] == CODE and CODE in ignored):
                continue
            yield (
                f"{key} is {untrusted.shown(value)}; the converter and FasterTransformer assume "
                + " or ".join(str(value) for value in known if value is not None or len(known) == 1)
            )


def _unknown(
    written: Mapping[str, Any],
    models: ModelsConfig,
    described: CheckpointConfig,
    converter: Converter,
    ignored: Collection[str],
) -> Iterator[str]:
    keys = [k for k in settings.unknown(written, models, described, converter) if k not in ignored]
    if not keys:
        return
    shown = [f"{untrusted.plain(k)} = {untrusted.shown(settings.value(written, k))}" for k in keys[:_SHOWN]]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    yield (
        "config.json has keys that may change what is computed, and are not known here: "
        f"{', '.join(shown)}{more} (--ignore-key KEY for one that changes nothing)"
    )


def _fixed(facts: Mapping[str, int], converter: Converter) -> Iterator[str]:
    for fact, fixed in converter.fixed.items():
        value = formula.value(fixed, facts.__getitem__)
        if facts[fact] != value:
            yield f"{fact} is {facts[fact]}; the converter assumes {fixed} = {value}"


def _sizes(checkpoint: Checkpoint, described: CheckpointConfig, version: str) -> Iterator[str]:
    facts = checkpoint.facts
    heads, hidden = facts.get("heads", 1), facts.get("hidden", 0)
    if "head_size" not in facts and hidden % heads:
        yield f"hidden is {hidden}, which {heads} heads cannot share evenly"
    else:
        size = head_size(facts)
        if (known := head_sizes(described, version)) and size not in known:
            sizes = ", ".join(map(str, known))
            yield f"a head has {size} values; FasterTransformer {version} computes heads of {sizes}"
    for fact, written in described.equal.items():
        value = _number(written, checkpoint)
        if value is not None and value != facts[fact]:
            yield f"{written} is {value}; the converter and FasterTransformer assume {fact} = {facts[fact]}"
    for fact, divisor in described.multiples.items():
        value = formula.value(divisor, facts.__getitem__)
        if facts[fact] % value:
            by = value if isinstance(divisor, int) else f"{value} {divisor}"
            yield f"{facts[fact]} {fact} cannot be shared by {by} evenly"


def _tokens(facts: Mapping[str, int]) -> Iterator[str]:
    """Yield the tokens of config.json that are beyond the table, where FasterTransformer reads and writes.

    `fit.require_own_rows` says where. transformers never meets such an end.
    """
    for name in sorted(TOKENS & facts.keys()):
        if facts[name] >= facts["vocabulary"]:
            yield (
                f"the {name} token is {facts[name]}, and the vocabulary has {facts['vocabulary']} tokens: "
                "write the one that the model knows into a copy of config.json"
            )


def _rotation(checkpoint: Checkpoint, models: ModelsConfig, family: str) -> Iterator[str]:
    """Yield complaints about rotary positions that no data type computes; model-repo knows the data type."""
    of = models.families[family]
    served = models.families[of.served_as or family].loading
    facts, name = checkpoint.facts, of.checkpoint.rotary
    if name is None or served is None or served.rotates is None or facts["hidden"] % facts["heads"]:
        return
    head = facts["hidden"] // facts["heads"]
    # As transformers rounds it (v4.46.3 modeling_gpt_neox.py, rotary_ndims).
    rotary = facts[name] if name in facts else int(head * checkpoint.reals[name])
    if wrong := rotation.fault_of_all(head, rotary, served.rotates.pairs):
        yield wrong


def head_size(facts: Mapping[str, int]) -> int:
    """Return the values of a head, by the facts of a checkpoint."""
    return facts.get("head_size", facts.get("hidden", 0) // facts.get("heads", 1))


def head_sizes(described: CheckpointConfig, version: str) -> Sequence[int]:
    """Return the sizes of a head that FasterTransformer `version` computes; none where any will do."""
    return next((known for spec, known in described.head_sizes.items() if version in SpecifierSet(spec)), ())


def _number(written: str, checkpoint: Checkpoint) -> int | None:
    """Return the value of a formula over keys of config.json; None where one of them is not there.

    Raises ConfigError for one that is no whole number.
    """

    def number_of(key: str) -> int:
        if (value := checkpoint.settings.get(key)) is None:
            raise KeyError(key)
        return untrusted.whole_number(value, key, checkpoint.folder / CONFIG, FETCH_AGAIN)

    try:
        return formula.value(written, number_of)
    except KeyError:
        return None

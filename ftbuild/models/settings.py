"""The keys of config.json: their values, what transformers 5 says in other words, and unknown keys.

The converters run with transformers 4, which ignores what transformers 5 says in new keys: a checkpoint that
the latter saved is described here as the former would have. Pure.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from ftbuild.config.checkpoints import CheckpointConfig, Converter
from ftbuild.config.families import ModelsConfig
from ftbuild.models import untrusted

Settings = Mapping[str, Any]
# What a checkpoint has for its head: a matrix of its own, the table of embeddings again, nothing, or a matrix
# whose file would have to be loaded to tell.
HeadKind = Literal["own", "table", "absent", "not compared"]
TIED, SCALED = "tie_word_embeddings", "scale_decoder_outputs"
_ROTARY = "rope_parameters"
_ROTARY_KEYS = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
_SCALING, _KINDS = "rope_scaling", ("rope_type", "type")
_UNSCALED, _LINEAR = "default", "linear"


def value(settings: Settings, key: str) -> Any:
    """Return the value of a key of config.json, of `a.b` that of b in the object a; None without one.

    An empty object or list says as little as none.
    """
    outer, _, inner = key.partition(".")
    outer_value = settings.get(outer)
    if inner:
        return value(outer_value, inner) if isinstance(outer_value, dict) else None
    return None if outer_value in ({}, []) else outer_value


def with_own_names(settings: Settings, aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with the keys that other names stand for (transformers' `attribute_map`)."""
    named = {key: settings[alias] for alias, key in aliases.items() if settings.get(alias) is not None}
    return {
        **named,
        **{key: setting for key, setting in settings.items() if setting is not None or key not in named},
    }


def as_version_4(settings: Settings, head: HeadKind) -> dict[str, Any]:
    """Return config.json as transformers 4 would have written it; the same where it did.

    `head` is what the checkpoint has for its head.
    """
    return _REWRITTEN.get(str(settings.get("model_type")), _unchanged)(dict(settings), head)


def contradictions(settings: Settings, described: CheckpointConfig) -> Iterator[str]:
    """Yield what a config.json says in two ways at once."""
    for alias, key in described.aliases.items():
        value_of_alias, other = value(settings, alias), value(settings, key)
        if value_of_alias is not None and other is not None and value_of_alias != other:
            shown = untrusted.shown(other), untrusted.shown(value_of_alias)
            yield f"{key} is {shown[0]}, and {alias}, another name of it, {shown[1]}"
    for key, derived in described.derived.items():
        number, of = value(settings, key), value(settings, derived.of)
        if number is not None and of is None:
            yield f"{key} is {untrusted.shown(number)}, and {derived.of}, from which it follows, is absent"
        allowed = derived.values.get(str(of)) if of is not None else None
        if number is not None and allowed is not None and number not in allowed:
            yield (
                f"{key} is {untrusted.shown(number)}, which contradicts {derived.of} {untrusted.shown(of)}: "
                f"that means {' or '.join(map(str, allowed))}"
            )


def rotary_contradictions(settings: Settings) -> Iterator[str]:
    """Yield what a config.json, as it was written, says of rotary positions by halves or in two ways at once.

    transformers 4 reads `rope_scaling` and keys beside it, 5 what `rope_parameters` has unless there is a
    `rope_scaling`, too (version 5, modeling_rope_utils.py, convert_rope_params_to_dict).
    """
    for newer, older in _ROTARY_KEYS.items():
        inside = value(settings, f"{_ROTARY}.{newer}")
        for key in (newer, older):
            beside = value(settings, key)
            if None not in (inside, beside) and inside != beside:
                shown = untrusted.shown(beside), untrusted.shown(inside)
                yield f"{key} is {shown[0]}, and {_ROTARY}.{newer}, another name of it, {shown[1]}"
    objects = {name: each for name in (_ROTARY, _SCALING) if isinstance(each := value(settings, name), dict)}
    for name, each in objects.items():
        yield from _scaling_faults(name, each)
    if len(objects) == 2 and _scaling(objects[_ROTARY]) != _scaling(objects[_SCALING]):
        shown = untrusted.shown(objects[_SCALING]), untrusted.shown(objects[_ROTARY])
        yield f"{_SCALING} is {shown[0]}, and {_ROTARY}, which scales positions as well, {shown[1]}"


def _scaling(rotary: Settings) -> tuple[Any, Any]:
    """Return how positions are scaled: the kind and its factor."""
    kind = next(_kinds(rotary), _UNSCALED)
    return kind, None if kind == _UNSCALED else rotary.get("factor")


def _kinds(rotary: Settings) -> Iterator[Any]:
    return (rotary[key] for key in _KINDS if rotary.get(key) is not None)


def _scaling_faults(name: str, rotary: Settings) -> Iterator[str]:
    kinds = [*_kinds(rotary)]
    factor = rotary.get("factor")
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        shown = untrusted.shown(kinds[0]), untrusted.shown(kinds[1])
        yield f"{name}.rope_type is {shown[0]}, and {name}.type, another name of it, {shown[1]}"
    if not kinds and factor is not None:
        yield f"{name} has the factor {untrusted.shown(factor)}, and no rope_type that says what it scales"
    if _LINEAR in kinds and factor is None:
        yield f"{name} is {_LINEAR}, and has no factor"


def nulls(settings: Settings, described: CheckpointConfig, known: Settings) -> Iterator[str]:
    """Yield the keys whose null is no default: transformers takes it for false, their absence for true.

    `known` are the values that keys must have.
    """
    switches = [key for key, values in known.items() if _has(values, True) and not _has(values, False)]
    for alternatives in described.facts.values():
        if isinstance(alternatives, tuple) and alternatives[-1] == 1:
            switches += [str(key) for key in alternatives[:-1]]
    for key in dict.fromkeys(switches):
        outer, _, inner = key.rpartition(".")
        place = value(settings, outer) if outer else settings
        if isinstance(place, dict) and inner in place and value(place, inner) is None:
            yield f"{key} is null, which transformers takes for false: without the key it is true"


def _has(values: Iterable[object], switch: bool) -> bool:
    return any(each is switch for each in values)


def assumed(
    models: ModelsConfig, described: CheckpointConfig, converter: Converter
) -> list[Mapping[str, tuple[Any, ...]]]:
    """Return the values that keys must have: for any family, for this one, and for the converter."""
    own = {key.partition(".")[0] for key in described.assumes}
    general = {key: known for key, known in models.assumes.items() if key not in own}
    return [general, described.assumes, converter.assumes]


def unknown(
    settings: Settings, models: ModelsConfig, described: CheckpointConfig, converter: Converter
) -> list[str]:
    """Return the keys that may change what is computed, for all that is known here."""
    named = {"model_type", *described.aliases, *described.derived, *described.texts}
    named |= {key for keys in assumed(models, described, converter) for key in keys}
    named |= {derived.of for derived in described.derived.values()}
    for alternatives in (*described.facts.values(), *described.reals.values()):
        for each in alternatives if isinstance(alternatives, tuple) else (alternatives,):
            named.update(str(each).split(" * "))
    for formula in described.equal.values():
        named.update(formula.split(" * "))
    if described.head:
        named.add(TIED)
    neutral = (*models.neutral, *described.neutral)
    return sorted(_unknown(settings, named, neutral, models, ""))


def _unknown(
    settings: Settings, named: Iterable[str], neutral: Iterable[str], models: ModelsConfig, outer: str
) -> Iterator[str]:
    for key, content in settings.items():
        full = f"{outer}{key}"
        inside = [name for name in named if name.startswith(f"{full}.")]
        if isinstance(content, dict) and inside:
            yield from _unknown(content, named, neutral, models, f"{full}.")
        elif not (
            full in named
            or content in (None, {}, [])
            # An object of transformers' own repeats keys that every configuration has.
            or (outer and content in models.assumes.get(key, ()))
            or any(fnmatch.fnmatchcase(name, known) for name in {full, key} for known in neutral)
        ):
            yield full


def _unchanged(settings: dict[str, Any], head: HeadKind) -> dict[str, Any]:
    return settings


def _gptneox(settings: dict[str, Any], head: HeadKind) -> dict[str, Any]:
    """Take rotary positions out of the object in which transformers 5 has them.

    transformers v5.24.0 configuration_gpt_neox.py:97-98, modeling_rope_utils.py:786-853; v4.46.3
    configuration_gpt_neox.py:168-171. A kind of scaling that is not known stays, to be refused.
    """
    for newer, older in _ROTARY_KEYS.items():
        if settings.get(older) is None and settings.get(newer) is not None:
            settings[older] = settings.pop(newer)
    rotary = settings.get(_ROTARY)
    if not isinstance(rotary, dict) or rotary.keys() - {
        "rope_theta", "rope_type", "type", "partial_rotary_factor", "factor"
    }:  # fmt: skip
        return settings
    del settings[_ROTARY]
    for newer, older in _ROTARY_KEYS.items():
        if rotary.get(newer) is not None:
            settings[older] = rotary[newer]
            settings.pop(newer, None)
    kind = rotary.get("rope_type", rotary.get("type"))
    if kind not in (None, "default"):
        settings["rope_scaling"] = {"type": kind, "factor": rotary.get("factor")}
    return settings


def _t5(settings: dict[str, Any], head: HeadKind) -> dict[str, Any]:
    """Take whether the head is the table from the tensors where transformers 5 saved them.

    It writes that they are tied whatever they are, and says in another key whether the last states are scaled
    (transformers v5.24.0 configuration_t5.py, __post_init__; its issue 47620). Version 4 scales when they are
    tied (v4.46.3 modeling_t5.py, forward of T5ForConditionalGeneration).
    """
    if settings.get(SCALED) is not None:
        settings[TIED] = head != "own"
    return settings


def _mt5(settings: dict[str, Any], head: HeadKind) -> dict[str, Any]:
    """Return what T5 says of the same model, which has other defaults (v4.46.3 configuration_mt5.py).

    mT5 of transformers 5 never scales the last states, and has no key for that (v5.24.0 modeling_mt5.py).
    """
    version = str(settings.get("transformers_version") or "")
    if settings.get(TIED) is not False and version.partition(".")[0] == "5":
        settings.setdefault(SCALED, False)
    defaults = {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0, TIED: False}
    return _t5({**defaults, **settings, "model_type": "t5"}, head)


_REWRITTEN: Mapping[str, Callable[[dict[str, Any], HeadKind], dict[str, Any]]] = {
    "gpt_neox": _gptneox,
    "t5": _t5,
    "mt5": _mt5,
}

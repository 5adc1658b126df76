"""Weights of int8: which families, releases and shapes have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.specifiers import SpecifierSet

from ftbuild.config.families import Family, Int8, ModelsConfig
from ftbuild.errors import ConfigError


def rules(family: Family, backend: str) -> Int8 | None:
    """Return the family's rules for int8 weights, or None where that version of the backend has none."""
    return family.int8 if family.int8 and backend in SpecifierSet(family.int8.backend) else None


def required(models: ModelsConfig, name: str) -> Int8:
    """Return the rules of the family `name`; ConfigError when it has no int8 weights."""
    if rules := models.families[name].int8:
        return rules
    able = [other for other, family in models.families.items() if family.int8]
    raise ConfigError(
        f"{name} has no int8 weights: FasterTransformer quantizes those of its GPT alone",
        where="--int8",
        hint=f"leave out --int8; families with int8 weights: {', '.join(able) or 'none'}",
    )


def obstacles(rule: Int8, facts: Mapping[str, int], gpus: int) -> Iterator[str]:
    """Yield why the weights of a model with these `facts` cannot be int8 on `gpus` GPUs.

    A server may load them, and fail at the first request (FT v5.3 fpA_intB_gemm_template.h:160-163).
    """
    for fact, multiple in rule.multiples.items():
        if facts[fact] % (gpus * multiple):
            share = f", {facts[fact] / gpus:g} on each of {gpus} GPUs," if gpus > 1 else ""
            yield f"its {fact} size {facts[fact]}{share} is not a multiple of {multiple}"

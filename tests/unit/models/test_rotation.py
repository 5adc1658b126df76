"""Rotary positions: the rule against the kernels' own steps, and who applies it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.config.families import Pairs
from ftbuild.models import config_ini, proof, rotation
from testing.weight_files import Model

MODELS = loader.own_models()
SIZES = sorted(
    {size for sizes in MODELS.families["gptneox"].checkpoint.head_sizes.values() for size in sizes}
)
HELD = {("fp32", 64): 2, ("fp32", 128): 4, ("fp32", 256): 4, ("fp16", 32): 2, ("fp16", 64): 2}
HELD |= {("fp16", 128): 4, ("fp16", 256): 8}


def right(rotary: int, pairs: Pairs) -> list[set[int]]:
    """The values of a head that are rotated together."""
    if pairs == "neighbours":
        return [{first, first + 1} for first in range(0, rotary, 2)]
    return [{first, first + rotary // 2} for first in range(rotary // 2)]


def computed(rotary: int, pairs: Pairs, held: int) -> list[set[int]] | None:
    """What the kernel rotates together, by its indices; None where an access is not aligned to its vector."""
    found = []
    for first in range(0, rotary, held):
        if pairs == "neighbours":
            found += [{first + i, first + i + 1} for i in range(0, held, 2)]
            continue
        half = rotary // 2
        index = first // half * (half // 2) + first % half // 2
        if index % (held // 2) or half % (held // 2) or rotary % held:
            return None
        found += [{index + i, index + half + i} for i in range(held // 2)]
    return found


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
@pytest.mark.parametrize("data_type", ["fp32", "fp16"])
@pytest.mark.parametrize("head", SIZES)
def test_the_rule_is_what_the_kernel_does(head: int, data_type: str, pairs: Pairs) -> None:
    held = HELD.get((data_type, next(size for size in (32, 64, 128, 256) if head <= size)))
    for rotary in range(3, head + 1):  # fewer occur nowhere, and are refused
        done = computed(rotary, pairs, held) if held else None
        is_right = (
            done is not None
            and sorted(map(sorted, done)) == sorted(map(sorted, right(rotary, pairs)))
            and max(map(max, done)) < rotary
        )
        assert (rotation.fault(head, rotary, pairs, data_type) is None) == is_right, rotary


def test_models_that_people_serve_are_rotated_right() -> None:
    """A head, and how many of its values are rotated: GPT-J, CodeGen, GPT-NeoX 20B, Pythia, dolly-v2."""
    known = [(256, 64), (64, 32), (96, 24), (64, 16), (256, 64), (128, 32), (80, 20), (160, 40)]
    for (head, rotary), pairs in itertools.product(known, ("neighbours", "halves")):
        assert rotation.right_types(head, rotary, pairs) == rotation.DATA_TYPES  # type: ignore[arg-type]


def test_more_than_a_head_is_not_rotated() -> None:
    assert "96 values of a head are rotated, which has 64" in str(rotation.fault(64, 96, "halves", "fp16"))
    assert rotation.fault(32, 0, "halves", "fp32") is None


@pytest.mark.parametrize(
    ("family", "head", "rotary", "data_type", "said"),
    [
        ("gptneox", 64, 6, None, "a multiple of 4"),
        ("gptneox", 64, 8, None, ""),
        ("gptneox", 144, 36, "fp16", "a multiple of 8"),
        ("gptneox", 144, 36, "fp32", ""),
        ("gptneox", 144, 36, None, ""),
        ("gptneox", 32, 8, "fp32", "does not rotate heads of 32"),
        ("gptneox", 32, 8, "bf16", ""),
        ("gptj", 64, 6, "fp16", ""),
        ("gptj", 128, 6, "fp16", "a multiple of 4"),
    ],
)
def test_weights_are_compared_with_what_is_computed(
    tmp_path: Path, family: str, head: int, rotary: int, data_type: str | None, said: str
) -> None:
    model = Model(family, MODELS.families[family].converters[-1])
    described = MODELS.families[family].loading
    assert described
    values = {
        **config_ini.all_values(model.write(tmp_path) / "config.ini"),
        f"{family}.size_per_head": str(head),
        f"{family}.rotary_embedding": str(rotary),
    }
    found = proof.of_values(tmp_path / "1-gpu", described, 1, values, data_type=data_type)
    rotated = [text for text in found if "rotate" in text]
    assert (said in rotated[0]) if said else not rotated

"""Rotary positions that FasterTransformer computes right: how many values of a head they may turn.

A thread of its attention holds a few neighbouring values of a head, and turns all of them or none. What it
asserts of their number is compiled out of a release build, which then gives other answers without a word.
"""

from __future__ import annotations

from collections.abc import Mapping

from ftbuild.config.families import Loading, Pairs
from ftbuild.models import config_ini, formula

DATA_TYPES = ("fp32", "fp16", "bf16")
# Values of a head, rounded up to a power of two -> values that a thread holds, in fp32 and in 16 bits
# (FT v5.3 decoder_masked_multihead_attention_template.hpp:86-134, Qk_vec_m_; v5.0 and v5.2 Qk_vec_).
_HELD = {32: (1, 2), 64: (2, 2), 128: (4, 4), 256: (4, 8)}


def fault(head: int, rotary: int, pairs: Pairs, data_type: str) -> str | None:
    """Return why a head of `head` values, `rotary` of them turned, gets wrong answers; None: right ones.

    Pairs of neighbours: all values of a thread, or none, are turned (FT v5.3
    decoder_masked_multihead_attention_utils.h:1373-1507). Pairs of halves: they change places in shared
    memory by vectors, so that each half must have an even number, too
    (decoder_masked_multihead_attention_template.hpp:1430-1482, vec_from_smem_transpose;
    unfused_attention_kernels.cu:1432-1466).
    """
    if not rotary:
        return None
    if rotary > head:
        return f"{rotary} values of a head are rotated, which has {head}"
    held = _held(head, data_type)
    if held == 1:
        return (
            f"in {data_type} FasterTransformer does not rotate heads of {head} values: "
            "every answer would be wrong"
        )
    step = max(held, 4 if pairs == "halves" else 2)
    if rotary % step:
        return (
            f"{rotary} values of a head are rotated; of heads of {head} values in {data_type} "
            f"FasterTransformer rotates a multiple of {step}: every answer would be wrong"
        )
    return None


def fault_of_all(head: int, rotary: int, pairs: Pairs) -> str | None:
    """Return why no data type gets such heads right; None: one does."""
    return None if right_types(head, rotary, pairs) else fault(head, rotary, pairs, "fp16")


def right_types(head: int, rotary: int, pairs: Pairs) -> tuple[str, ...]:
    """Return the data types in which such heads get right answers."""
    return tuple(each for each in DATA_TYPES if fault(head, rotary, pairs, each) is None)


def of_values(described: Loading, values: Mapping[str, str]) -> tuple[int, int, Pairs] | None:
    """Return the first arguments of `fault` for the values of a config.ini, by section.key.

    None: the model has no rotary positions, or the values do not say it, which is another defect.
    """
    rotates = described.rotates
    if rotates is None:
        return None

    def number(key: str) -> int:
        return config_ini.number(values[key])

    try:
        return formula.value(rotates.head, number), formula.value(rotates.values, number), rotates.pairs
    except (KeyError, ValueError):
        return None


def _held(head: int, data_type: str) -> int:
    rounded = max(32, 1 << (head - 1).bit_length())
    fp32, half = _HELD.get(rounded, _HELD[256])
    return fp32 if data_type == "fp32" else half

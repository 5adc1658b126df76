"""A compile that is too long to be run as a whole: which units to compile, and what they tell of all.

Method. A unit that takes long with us, or with any SM, is always compiled. The others are drawn without
replacement, with a seed, from four strata: CUDA or not, compiled by us as well or not. In a stratum that we
compile as well, the total is estimated by the ratio of upstream's to our seconds, in the other by the mean;
the error is the standard error of both with the correction for a finite population (W. G. Cochran, Sampling
Techniques, chapters 2, 5 and 6).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ftbuild.build import compile_order

# CPU seconds by unit, which is its object's path in the build tree.
Seconds = Mapping[str, float]

# Among these one SM is a twentieth of four here, and a half of them there.
LONG_SECONDS = 5.0
# What takes some SM long can be short with ours: a GEMM that sm_90 does not have takes it a fiftieth of four.
_LISTED = frozenset(compile_order.SOURCES.split())
DRAWN = 25
SEED = 20221214


@dataclass(frozen=True)
class Estimate:
    """Seconds of all units with the standard error, from `measured` of `units`."""

    seconds: float
    error: float
    measured: int
    units: int


def choose(every: Iterable[str], ours: Seconds, *, drawn: int = DRAWN, seed: int = SEED) -> list[str]:
    """The units to compile."""
    long, strata = _divided(every, ours)
    random_ = random.Random(seed)
    return [*long, *(u for s in strata for u in sorted(random_.sample(s, min(drawn, len(s)))))]


def estimate(every: Iterable[str], ours: Seconds, measured: Seconds) -> Estimate:
    """The total of `every`, of which `measured` are known; a stratum known as a whole adds no error."""
    long, strata = _divided(every, ours)
    found = [_stratum(units, ours, measured) for units in (long, *strata) if units]
    return Estimate(
        sum(seconds for seconds, _ in found),
        math.sqrt(sum(variance for _, variance in found)),
        len(measured),
        len(long) + sum(map(len, strata)),
    )


def _divided(every: Iterable[str], ours: Seconds) -> tuple[list[str], list[list[str]]]:
    """The long units, and the strata of the rest."""
    long: list[str] = []
    strata: dict[tuple[bool, bool], list[str]] = {}
    for unit in sorted(every):
        if ours.get(unit, 0.0) >= LONG_SECONDS or compile_order.source(unit) in _LISTED:
            long.append(unit)
        else:
            strata.setdefault((unit.endswith(".cu.o"), unit in ours), []).append(unit)
    return long, [strata[key] for key in sorted(strata)]


def _stratum(stratum: Sequence[str], ours: Seconds, measured: Seconds) -> tuple[float, float]:
    """Total and variance: a ratio to our seconds, or, where we have none, to one second each: the mean."""
    known = [u for u in stratum if u in measured]
    if not known:
        raise ValueError(f"nothing was measured of {len(stratum)} units like {stratum[0]}")
    ratio = sum(measured[u] for u in known) / sum(ours.get(u, 1.0) for u in known)
    total = ratio * sum(ours.get(u, 1.0) for u in stratum)
    if len(known) == len(stratum):
        return total, 0.0
    if len(known) == 1:
        raise ValueError(f"one unit tells no error: {known[0]}")
    residues = [measured[u] - ratio * ours.get(u, 1.0) for u in known]
    spread = sum(residue**2 for residue in residues) / (len(known) - 1)
    return total, len(stratum) ** 2 * (1 - len(known) / len(stratum)) / len(known) * spread

"""Sampling of a compile that is too long to run as a whole: choice of units, and the estimate of the total.

Method. A unit that takes long with our recipe, or with any SM, is always compiled. The others are drawn
without replacement, with a seed, from four strata: CUDA or not, compiled by our recipe or not. In a stratum
that our recipe compiles too, the total is estimated by the ratio of upstream's to our seconds, in the other
by the mean; the error is the standard error of both with the correction for a finite population (W. G.
Cochran, Sampling Techniques, chapters 2, 5 and 6).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ftbuild.build import compile_order

# CPU seconds by unit, named by its object's path in the build tree.
Seconds = Mapping[str, float]

# In units longer than this, the share of one SM in four varies from a twentieth to a half.
LONG_SECONDS = 5.0
# A unit that is long for some SM can be short for ours: a GEMM that sm_90 lacks takes a fiftieth of four SMs.
_LISTED = frozenset(compile_order.SOURCES.split())
DRAWN = 25
SEED = 20221214


@dataclass(frozen=True)
class Estimate:
    """The seconds of all units with their standard error, from `measured` of `units`."""

    seconds: float
    error: float
    measured: int
    units: int


def choose(every: Iterable[str], seconds_of: Seconds, *, drawn: int = DRAWN, seed: int = SEED) -> list[str]:
    """Return the units to compile."""
    long, strata = _divided(every, seconds_of)
    random_ = random.Random(seed)
    return [*long, *(u for s in strata for u in sorted(random_.sample(s, min(drawn, len(s)))))]


def estimate(every: Iterable[str], seconds_of: Seconds, measured: Seconds) -> Estimate:
    """Return the total of `every`, of which `measured` are known; a complete stratum adds no error."""
    long, strata = _divided(every, seconds_of)
    totals = [_stratum(units, seconds_of, measured) for units in (long, *strata) if units]
    return Estimate(
        sum(seconds for seconds, _ in totals),
        math.sqrt(sum(variance for _, variance in totals)),
        len(measured),
        len(long) + sum(map(len, strata)),
    )


def _divided(every: Iterable[str], seconds_of: Seconds) -> tuple[list[str], list[list[str]]]:
    """Return the long units, and the strata of the rest."""
    long: list[str] = []
    strata: dict[tuple[bool, bool], list[str]] = {}
    for unit in sorted(every):
        if seconds_of.get(unit, 0.0) >= LONG_SECONDS or compile_order.source(unit) in _LISTED:
            long.append(unit)
        else:
            strata.setdefault((unit.endswith(".cu.o"), unit in seconds_of), []).append(unit)
    return long, [strata[key] for key in sorted(strata)]


def _stratum(stratum: Sequence[str], seconds_of: Seconds, measured: Seconds) -> tuple[float, float]:
    """Return total and variance, by the ratio to our seconds or, without them, by the mean."""
    known = [u for u in stratum if u in measured]
    if not known:
        raise ValueError(f"none of {len(stratum)} units like {stratum[0]} was measured")
    ratio = sum(measured[u] for u in known) / sum(seconds_of.get(u, 1.0) for u in known)
    total = ratio * sum(seconds_of.get(u, 1.0) for u in stratum)
    if len(known) == len(stratum):
        return total, 0.0
    if len(known) == 1:
        raise ValueError(f"one unit is not enough for an error estimate: {known[0]}")
    residues = [measured[u] - ratio * seconds_of.get(u, 1.0) for u in known]
    spread = sum(residue**2 for residue in residues) / (len(known) - 1)
    return total, len(stratum) ** 2 * (1 - len(known) / len(stratum)) / len(known) * spread

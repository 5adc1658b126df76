"""A compile that is too long to be run as a whole: which units to compile, and what they tell of all.

    python -m benchmarks.sampling OURS UPSTREAM TREE=TARGETS... > chosen.txt

OURS and UPSTREAM are names of CPU times (benchmarks/cpu_times.py). TARGETS is what `ninja -t targets all`
prints in a tree of upstream's. The chosen targets, one a line after its tree, are to be compiled: `ninja
TARGET...`.

Method. A unit that takes long with us is always compiled. The others are drawn without replacement, with a
seed, from four strata: CUDA or not, compiled by us as well or not. In a stratum that we compile as well, the
total is estimated by the ratio of upstream's to our seconds, in the other by the mean; the error is the
standard error of both with the correction for a finite population (W. G. Cochran, Sampling Techniques,
chapters 2, 5 and 6).
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cpu_times
from benchmarks.cpu_times import Unit

Seconds = Mapping[Unit, float]

LONG_SECONDS = 20.0
DRAWN = 25
SEED = 20221214
_OBJECT = re.compile(r"^(\S+\.o): ", re.M)


@dataclass(frozen=True)
class Estimate:
    """Seconds of all units with the standard error, from `measured` of `units`."""

    seconds: float
    error: float
    measured: int
    units: int


def choose(every: Iterable[Unit], ours: Seconds, *, drawn: int = DRAWN, seed: int = SEED) -> list[Unit]:
    """The units to compile."""
    long, strata = _divided(every, ours)
    random_ = random.Random(seed)
    return [*long, *(u for s in strata for u in sorted(random_.sample(s, min(drawn, len(s)))))]


def estimate(every: Iterable[Unit], ours: Seconds, measured: Seconds) -> Estimate:
    """The total of `every`, of which `measured` are known; a stratum known as a whole adds no error."""
    long, strata = _divided(every, ours)
    found = [_stratum(units, ours, measured) for units in (long, *strata) if units]
    return Estimate(
        sum(seconds for seconds, _ in found),
        math.sqrt(sum(variance for _, variance in found)),
        len(measured),
        len(long) + sum(map(len, strata)),
    )


def _divided(every: Iterable[Unit], ours: Seconds) -> tuple[list[Unit], list[list[Unit]]]:
    """The long units, and the strata of the rest."""
    long: list[Unit] = []
    strata: dict[tuple[bool, bool], list[Unit]] = {}
    for unit in sorted(every):
        if ours.get(unit, 0.0) >= LONG_SECONDS:
            long.append(unit)
        else:
            strata.setdefault((unit[1].endswith(".cu.o"), unit in ours), []).append(unit)
    return long, [strata[key] for key in sorted(strata)]


def _stratum(stratum: Sequence[Unit], ours: Seconds, measured: Seconds) -> tuple[float, float]:
    """Total and variance: a ratio to our seconds, or, where we have none, to one second each: the mean."""
    known = [u for u in stratum if u in measured]
    if not known:
        raise ValueError(f"nothing was measured of {len(stratum)} units like {stratum[0][1]}")
    ratio = sum(measured[u] for u in known) / sum(ours.get(u, 1.0) for u in known)
    total = ratio * sum(ours.get(u, 1.0) for u in stratum)
    if len(known) == len(stratum):
        return total, 0.0
    if len(known) == 1:
        raise ValueError(f"one unit tells no error: {known[0][1]}")
    residues = [measured[u] - ratio * ours.get(u, 1.0) for u in known]
    spread = sum(residue**2 for residue in residues) / (len(known) - 1)
    return total, len(stratum) ** 2 * (1 - len(known) / len(stratum)) / len(known) * spread


def everything(name: str) -> list[Unit] | None:
    """All units of a compile that was sampled; None for one that ran as a whole."""
    file = _list(name)
    if not file.exists():
        return None
    return [(tree, output) for tree, output in (line.split("\t") for line in file.read_text().splitlines())]


def _list(name: str) -> Path:
    return cpu_times.path(name).with_name(f"{name}.all.txt")


def main() -> None:
    """Keep the list of all units beside the unit times, and print which to compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ours", help="name of our CPU times")
    parser.add_argument("upstream", help="name that upstream's will have")
    parser.add_argument("targets", nargs="+", metavar="TREE=TARGETS")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="units of each stratum")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    lists = (pair.split("=", 1) for pair in options.targets)
    every = [(tree, out) for tree, file in lists for out in _OBJECT.findall(Path(file).read_text())]
    _list(options.upstream).parent.mkdir(parents=True, exist_ok=True)
    _list(options.upstream).write_text("".join(f"{tree}\t{output}\n" for tree, output in sorted(every)))
    for unit in choose(every, cpu_times.read(options.ours), drawn=options.drawn, seed=options.seed):
        print(*unit, sep="\t")


if __name__ == "__main__":
    main()

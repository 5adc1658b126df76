"""Facts of a model from the names and sizes of its weight files: the formulas of models.yaml, solved.

Each file is an equation, bytes = product of facts x bytes of a value. A norm gives the hidden size, a matrix
then its other side, and only one size of a value fits both. What enters as a product alone, as the number
of heads times their size, stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ftbuild.config.families import LoadedPart
from ftbuild.models import loading
from ftbuild.models.loading import GPU, LAYER
from ftbuild.models.weights import GPUS

# Bytes of a value: fp32, and fp16 or bf16.
ITEM_BYTES = (4, 2)


@dataclass(frozen=True)
class Solution:
    """What follows from the files: the bytes of a value, and facts; unknown ones are missing."""

    item: int
    facts: Mapping[str, int]


@dataclass(frozen=True)
class _Equation:
    factors: Counter[str]
    constant: int
    bytes: int


def gpus(part: LoadedPart, names: Mapping[str, int]) -> int:
    """Return the number of GPUs that the files of a part are split over; 0 where there are none."""
    split = [
        expression
        for name in loading.read_files(part)
        if GPU in (expression := loading.expression(name)).groupindex
    ]
    ranks = (
        int(match[GPU]) for name in names for expression in split if (match := expression.fullmatch(name))
    )
    return max(ranks, default=-1) + 1


def solve(part: LoadedPart, sizes: Mapping[str, int], known: Mapping[str, int]) -> list[Solution]:
    """Return what follows from a part's files, for each size of a value that fits all of them: usually one.

    `sizes` are bytes by name, `known` are facts that are certain, with the number of GPUs.
    """
    equations, absent, counted = list[_Equation](), set[str](), dict[str, int]()
    for pattern, size in (*loading.read_files(part).items(), *part.more.items()):
        expression = loading.expression(pattern)
        matches = {name: match for name in sizes if (match := expression.fullmatch(name))}
        factors = size.split(" * ")
        if not matches:
            absent |= {name for name in factors if loading.is_switch(part, name)}
            continue
        if counter := loading.layer_counter(pattern):
            layers = max(int(match[LAYER]) for match in matches.values()) + 1
            counted[counter] = max(counted.get(counter, 0), layers)
        shares = known[GPUS] if GPU in expression.groupindex else 1
        names = Counter(name for name in factors if not name.isdigit())
        constant = 1
        for factor in factors:
            constant *= int(factor) if factor.isdigit() else 1
        equations.append(_Equation(names, constant, sizes[min(matches)] * shares))
    present = {name for equation in equations for name in equation.factors}
    certain = {**dict.fromkeys(absent - present, 0), **counted, **known}
    return [
        Solution(item, facts)
        for item in ITEM_BYTES
        if (facts := _solved(equations, item, certain)) is not None
    ]


def _solved(equations: list[_Equation], item: int, certain: Mapping[str, int]) -> dict[str, int] | None:
    """Return the facts for one size of a value; None where an equation does not hold with them.

    A file that a switch of a fact that is known to be off would leave unread takes no part.
    """
    facts = dict(certain)
    left = list(equations)
    while True:
        solved = [equation for equation in left if len(set(equation.factors) - facts.keys()) <= 1]
        if not solved:
            return facts
        left = [equation for equation in left if equation not in solved]
        for equation in solved:
            rest = equation.constant * item
            for name, power in equation.factors.items():
                rest *= facts[name] ** power if name in facts else 1
            if rest == 0:
                continue
            unknown = next((name for name in equation.factors if name not in facts), None)
            if equation.bytes % rest:
                return None
            value = equation.bytes // rest
            if unknown is None:
                if value != 1:
                    return None
                continue
            root = round(value ** (1 / equation.factors[unknown]))
            if not root or root ** equation.factors[unknown] != value:
                return None
            facts[unknown] = root


def absent_switches(part: LoadedPart, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the switches of `only_if` that must be off, with 0: their files are not there.

    That they are there says less: converters also write some that are not read.
    """
    for pattern, condition in part.only_if.items():
        names = condition.split(" * ")
        if len(names) == 1 and not any(loading.expression(pattern).fullmatch(name) for name in sizes):
            yield names[0], 0

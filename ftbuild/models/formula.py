"""Formulas of models.yaml: products of numbers and names, such as "3 * hidden * hidden"."""

from __future__ import annotations

import math
from collections.abc import Callable


def value(formula: str | int, number_of: Callable[[str], int]) -> int:
    """Return the value of a formula; `number_of` gives that of each name in it, and may raise."""
    return math.prod(
        int(factor) if factor.isdigit() else number_of(factor) for factor in str(formula).split(" * ")
    )

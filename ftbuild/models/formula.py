"""Products of numbers and names, the one kind of formula in models.yaml: "3 * hidden * hidden"."""

from __future__ import annotations

import math
from collections.abc import Callable


def value(product: str | int, number_of: Callable[[str], int]) -> int:
    """The value of a product; `number_of` gives that of each name in it, and may raise."""
    return math.prod(
        int(factor) if factor.isdigit() else number_of(factor) for factor in str(product).split(" * ")
    )

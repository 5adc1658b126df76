"""Random moments at which tests kill a program; FTBUILD_SEED repeats those of another run."""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("FTBUILD_SEED") or random.SystemRandom().randrange(10**6))


def kills(default: int) -> int:
    """Return how often a test kills: FTBUILD_KILLS, else the `default`."""
    return int(os.environ.get("FTBUILD_KILLS") or default)


def share(part: int, parts: int) -> float:
    """Return a random point of a part of the whole, from 0 to 1."""
    return (part + random.Random(SEED + part).random()) / parts

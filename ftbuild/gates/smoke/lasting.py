"""Loads that can last: a number of requests, or as many as there is time for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ftbuild.gates.smoke import settings
from ftbuild.gates.smoke.served import Connected


def seconds(served: Connected) -> float:
    """Return the seconds that a load on a variant lasts at least; 0 without a GPU."""
    return settings.load_seconds() if served.on_gpu else 0.0


def repeated(fewest: int, until: float) -> Iterator[None]:
    """Yield `fewest` times, and then until a time of the monotonic clock."""
    done = 0
    while done < fewest or time.monotonic() < until:
        done += 1
        yield

"""When to come back to a full queue: after the time that an answer takes now, waiting included."""

from __future__ import annotations

import math

from ftserve.front.failures import AWAY_SECONDS

# OpenAI's clients obey up to a minute; for more they choose a time of their own
# (openai-python 1.0 and later, _base_client.py, _calculate_retry_timeout).
LONGEST_SECONDS = 60
# How much one answer counts beside those before it.
_WEIGHT = 1 / 16


class Pace:
    """The mean of the seconds that the last answers took, from the request to their end."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def add(self, seconds: float) -> None:
        """Count one answer."""
        before = seconds if self._seconds is None else self._seconds
        self._seconds = before + (seconds - before) * _WEIGHT

    def retry_seconds(self) -> int:
        """Return the whole seconds, at least 1, after which the waiting requests are probably answered."""
        if self._seconds is None:
            return AWAY_SECONDS
        return min(max(math.ceil(self._seconds), 1), LONGEST_SECONDS)

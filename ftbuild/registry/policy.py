"""The retry policy towards registries and webhooks."""

from __future__ import annotations

from dataclasses import dataclass

# Statuses that may be gone a moment later (RFC 6585; RFC 9110, section 15.6).
BUSY = (429, 500, 502, 503, 504)
# Those by which a server says that it has not done what it was asked for.
REFUSING = (429, 503)


@dataclass(frozen=True)
class RetryPolicy:
    """Retries of what may succeed a moment later; all times in seconds.

    Pauses start with `first_pause` and double. A server's Retry-After is honoured while all pauses together
    stay below `patience`.
    """

    retries: int
    first_pause: float
    patience: float


# Pauses of 1 to 32 s: together a minute, which outlasts a registry's restart or a limit per minute.
POLICY = RetryPolicy(retries=6, first_pause=1.0, patience=64.0)

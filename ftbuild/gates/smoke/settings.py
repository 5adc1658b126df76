"""What the environment asks of the suite: other requests, more of them, loads that last (docs/smoke.md)."""

from __future__ import annotations

import os

from ftbuild.errors import ConfigError

SEED, MALFORMED, LOAD = "FTBUILD_SEED", "FTBUILD_ABUSE", "FTBUILD_LOAD"
# A day.
MOST_SECONDS = 86400.0
MOST_REQUESTS = 10_000_000


def check() -> None:
    """Raise ConfigError for a setting that cannot be read, before a run that would end with it."""
    malformed_requests()
    load_seconds()


def seed() -> str:
    """Return what malformed requests are drawn by: any text."""
    return os.environ.get(SEED) or "0"


def malformed_requests() -> int | None:
    """Return how many malformed requests each variant gets, or None: as many as the test says."""
    if not (value := os.environ.get(MALFORMED)):
        return None
    digits = value.strip()
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0
    if not 0 < number <= MOST_REQUESTS:
        what = f"{MALFORMED} is {value[:40]!r}, which is not a number of requests"
        raise ConfigError(what, hint=f"1 to {MOST_REQUESTS:,}, or unset it")
    return number


def load_seconds() -> float:
    """Return the seconds that each load lasts at least."""
    value = os.environ.get(LOAD) or "0"
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        what = f"{LOAD} is {value[:40]!r}, which is not a number of seconds"
        raise ConfigError(what, hint=f"0 to {MOST_SECONDS:,.0f}, or unset it")
    return seconds

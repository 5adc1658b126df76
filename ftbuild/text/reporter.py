"""Progress messages of long work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

# Takes one message, which may have several lines.
Reporter = Callable[[str], None]
REPORT_SECONDS = 10.0


class Pace:
    """Says when the next message of long work is due: every `REPORT_SECONDS`."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for a message, which the caller then writes."""
        now = time.monotonic()
        if now - self._last <= REPORT_SECONDS:
            return False
        self._last = now
        return True


def to_stderr(message: str) -> None:
    """Print a message beside the output that a program may read."""
    print(message, file=sys.stderr)


def prefixed(report: Reporter, cell: str) -> Reporter:
    """Return a reporter whose messages name a cell."""
    return lambda message: report(f"[{cell}] {message}")

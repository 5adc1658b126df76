"""Progress messages of long work."""

from __future__ import annotations

import sys
from collections.abc import Callable

# Takes one message, which may have several lines.
Reporter = Callable[[str], None]


def to_stderr(message: str) -> None:
    """Print a message beside the output that a program may read."""
    print(message, file=sys.stderr)


def prefixed(report: Reporter, cell: str) -> Reporter:
    """Return a reporter whose messages name a cell."""
    return lambda message: report(f"[{cell}] {message}")

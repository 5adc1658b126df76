"""What an audit says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that the audit looked at: `state` is ok, warn or fail."""

    what: str
    state: str
    detail: str = ""

"""What an audit says of one thing that it looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STATES = ("fail", "warn", "ok")


@dataclass(frozen=True)
class Finding:
    """One thing that the audit looked at: `state` is ok, warn or fail."""

    what: str
    state: str
    detail: str = ""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """In the order of STATES, else as they come."""
    return sorted(findings, key=lambda finding: STATES.index(finding.state))

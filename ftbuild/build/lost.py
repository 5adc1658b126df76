"""Builders that vanish in the middle of a build, and how a build command says so."""

from __future__ import annotations

import re

_SAID = "was lost during the build"
# buildx's last line about a builder. One about a step, whose output may hold anything, says "failed to
# solve"; a connection that is merely refused may be that to a registry.
_LOST = re.compile(
    r"^ERROR: (?P<line>(?!.*failed to solve).*(?:code = Unavailable|error reading from server"
    r"|error during connect|Cannot connect to the Docker).*)",
    re.M,
)


def line(log: str) -> str:
    """Return the line of a BuildKit log that says that the builder is gone; empty if none does."""
    found = _LOST.search(log)
    return found["line"].strip() if found else ""


def message(builder: str, why: str) -> str:
    """Return the message about a lost builder."""
    return f"builder {builder} {_SAID}: {why}"


def reason(output: str) -> str:
    """Return why, from the output of a command that ended with such a message; empty without one."""
    found = re.search(rf"builder \S+ {_SAID}: (.*)", output)
    return found[1] if found else ""

"""docker buildx: version, and a builder's limits of memory and cache by its own description."""

from __future__ import annotations

import re

from ftbuild.errors import HostError
from ftbuild.host import shell

# The first version with named contexts, `docker-image://` of local images and bake's secrets (release notes).
OLDEST = (0, 10)
ANSWER_SECONDS = 20
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_RULE = re.compile(r"^GC Policy rule#\d+:\n((?:[ \t].*\n?)*)", re.M)
_LIMIT = re.compile(r"^\s*(?:Keep Bytes|Max Used Space):\s*([\d.]+)\s*(\w+)", re.M)


def version() -> tuple[int, ...]:
    """Return the version of the buildx plugin; HostError if it is missing or too old."""
    try:
        text = shell.run(["docker", "buildx", "version"], timeout=ANSWER_SECONDS).stdout
    except shell.CommandFailed as missing:
        raise HostError(
            "docker buildx is not installed",
            hint="install the plugin (Debian: docker-buildx), or run ./bootstrap, which installs it",
        ) from missing
    match = re.search(r"v?(\d+)\.(\d+)\.(\d+)", text)
    numbers = tuple(int(part) for part in match.groups()) if match else (0,)
    if numbers < OLDEST:
        raise HostError(f"docker buildx {text.strip()} is too old", hint="0.10 or later is needed")
    return numbers


def memory_limit(builder: str) -> int | None:
    """Return the smallest limit in the output of `docker buildx inspect`, in bytes.

    Drivers call it `memory` (docker-container) or `limits.memory` (kubernetes); Docker's units are powers of
    two (docs.docker.com/build/builders/drivers).
    """
    matches = re.findall(r'(?<![\w.-])(?:limits\.)?memory="(\d+)([kmg]?)i?b?"', builder, re.I)
    limits = [int(number) * 1024 ** " kmg".index(unit.lower() or " ") for number, unit in matches]
    return min(limits, default=None)


def gc_limit() -> int | None:
    """Return the bytes of cache that the current builder keeps beyond images; None if unknown.

    At the end of a build it removes the least recently used cache down to this size, cache mounts too
    (docs.docker.com/build/cache/garbage-collection).
    """
    try:
        return parse_gc_limit(_inspected())
    except shell.CommandFailed:
        return None


def parse_gc_limit(described: str) -> int | None:
    """Return the limit from the output of `docker buildx inspect`, by the rules without a keep duration."""
    rules = [rule for rule in _RULE.findall(described) if "Keep Duration" not in rule]
    limits = [float(number) * _UNITS[unit] for rule in rules for number, unit in _LIMIT.findall(rule)]
    return int(min(limits)) if limits else None


def _inspected(*name: str) -> str:
    return shell.run(["docker", "buildx", "inspect", *name], timeout=ANSWER_SECONDS).stdout

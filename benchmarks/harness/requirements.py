"""What benchmarks need of the machine: why one cannot run here, in words, or None."""

from __future__ import annotations

import shutil


def engine() -> str | None:
    """Return why the Docker Engine does not answer, or None."""
    from ftbuild.engine import daemon
    from ftbuild.errors import HostError

    try:
        daemon.connect()
    except HostError as missing:
        return missing.what
    return None


def program(name: str) -> str | None:
    """Return that a program is not installed, or None."""
    return None if shutil.which(name) else f"{name} is not installed"

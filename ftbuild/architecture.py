"""Architectures of processors: names of Debian and OCI images, and those of the kernel and of wheels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Architecture = Literal["amd64", "arm64"]
DEFAULT: Architecture = "amd64"
# `uname --machine`, and the end of a wheel's platform tag (PEP 600).
MACHINES: Mapping[Architecture, str] = {"amd64": "x86_64", "arm64": "aarch64"}


def of_machine(machine: str) -> Architecture:
    """Return the architecture of `uname --machine`; the default for one that no image is built for."""
    return next((name for name, known in MACHINES.items() if known == machine), DEFAULT)


def platform(architecture: Architecture) -> str:
    """Return the platform of images (OCI image-spec, config.md), as buildx takes it: `linux/amd64`."""
    return f"linux/{architecture}"

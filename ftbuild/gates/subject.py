"""The cell that a gate tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Subject:
    """A cell under test, and what a test of it needs.

    `client` is the engine that holds its images, `folder` the work folder of its build, which receives the
    gate's record, and `cache` the store of the sources' git objects.
    """

    client: docker.DockerClient
    plan: Plan
    folder: Path
    cache: Path
    report: Reporter

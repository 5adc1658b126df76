"""The one shape of serving targets: files that are written for a platform, from a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from ftserve.deployment import Deployment


class Target(Protocol):
    """A platform, with what it gives to a deployment; `targets.table` lists them all."""

    name: ClassVar[str]
    """Its command is `invoke serve.NAME`."""

    def files(self, deployment: Deployment) -> Mapping[str, str]:
        """Return file name -> text; ConfigError for a deployment that the platform cannot serve."""

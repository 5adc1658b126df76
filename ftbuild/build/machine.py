"""Settings of the machine that builds: what a build is handed beside its inputs, and what no file holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftbuild import cmake
from ftbuild.build import compile_order, proxies
from ftbuild.engine import builders
from ftbuild.errors import ConfigError

# The variable that hands the machine's settings, passwords among them, to buildx: no file holds them.
SETTINGS = "HOST_SETTINGS"
# A compiler cache shared by machines (ccache(1), remote storage backends).
REMOTE_STORAGE = "CCACHE_REMOTE_STORAGE"
ONLINE = f"{REMOTE_STORAGE} is set: compile steps have network access, and the images are labelled so"
# Variables of the user's environment that compile steps need, for the compiler cache.
PASSED_ON = ("CCACHE_MAXSIZE", REMOTE_STORAGE)


@dataclass(frozen=True)
class Host:
    """Settings of the machine, passed to the build as secrets so that they change no cache key.

    `cache` is a repository in a registry for layers. `full`: the builder can fill it, and attest its images,
    which an engine with its own image store cannot (docs.docker.com/build/builders/drivers). `driver` is
    that of `builder`. With `recompile`, no object of before is used.
    """

    jobs: int
    ca: Path | None = None
    builder: str | None = None
    progress: str = "auto"
    cache: str | None = None
    full: bool = False
    driver: str = ""
    recompile: bool = False

    @property
    def is_engine(self) -> bool:
        """Return whether the builder is that of an engine, which is a docker context for buildx."""
        return self.driver == builders.DOCKER

    def lines(self) -> str:
        """Return the `host` secret: KEY=VALUE lines, the environment of steps that compile."""
        return self.own_lines() + _lines({name: os.environ[name] for name in PASSED_ON if name in os.environ})

    def own_lines(self) -> str:
        """Return the lines that hold no variable of the user's."""
        return _lines(
            {
                "JOBS": str(self.jobs),
                "JOB_BYTES": str(cmake.MEMORY_PER_JOB_BYTES),
                "HEAVIEST": compile_order.SOURCES,
                **({"CCACHE_RECACHE": "1"} if self.recompile else {}),
            }
        )


def compiles_online() -> bool:
    """Return whether compile steps get network access, which they only do for a remote compiler cache."""
    return bool(os.environ.get(REMOTE_STORAGE))


def environment(host: Host) -> dict[str, str]:
    """Return the settings, and what puts BuildKit's whole provenance into the metadata file (buildx 0.14).

    That holds the build arguments, so there is none if one may be a proxy with a password.
    """
    provenance = "disabled" if proxies.are_set() else "max"
    return {SETTINGS: host.lines(), "BUILDX_METADATA_PROVENANCE": provenance}


def _lines(settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if "\n" in value:  # it would be another setting
            raise ConfigError(f"{name} has more than one line", hint=f"correct or unset {name}")
    return "".join(f"{name}={value}\n" for name, value in settings.items())

"""The real sources, by whatever way this machine's git has to them; without one these tests skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.host.git import git, last_line
from ftbuild.host.paths import cache_folder
from ftbuild.host.shell import CommandFailed
from ftbuild.sources import patched
from ftbuild.sources.patches.series import PatchStatus
from testing import ROOT

PATIENCE_SECONDS = 10.0


@pytest.fixture(scope="session")
def config() -> Config:
    loaded = loader.load(ROOT / "buildcfg")
    for name, repository in loaded.sources.repositories.items():
        try:
            git("ls-remote", repository.url, "HEAD", timeout=PATIENCE_SECONDS)
        except CommandFailed as failed:
            pytest.skip(f"{name} cannot be reached: {last_line(failed)}")
    return loaded


@pytest.fixture(scope="session")
def cache() -> Path:
    """The machine's own source cache: what a build has fetched is not fetched again."""
    return cache_folder()


@pytest.fixture(scope="session")
def survey(config: Config, cache: Path) -> list[PatchStatus]:
    return list(patched.survey(config, (), cache, print))

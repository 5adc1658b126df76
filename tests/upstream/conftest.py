"""The real sources, by whatever way this machine's git has to them; without one these tests skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild import config as configuration
from ftbuild import patching
from ftbuild.config import Config
from ftbuild.git import git, last_line
from ftbuild.options import cache_folder
from ftbuild.patches import PatchStatus
from ftbuild.shell import CommandFailed

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 10.0


@pytest.fixture(scope="session")
def config() -> Config:
    loaded = configuration.load(ROOT / "buildcfg")
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
    return list(patching.survey(config, (), cache, print))

"""The real sources, in whatever way this machine's git reaches them; a test skips without those it needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
Need = Callable[..., None]


@pytest.fixture(scope="session")
def config() -> Config:
    return loader.load(ROOT / "buildcfg")


@functools.cache
def unreachable(url: str) -> str:
    """Return why git cannot reach a repository, nothing where it can."""
    try:
        git("ls-remote", url, "HEAD", timeout=PATIENCE_SECONDS)
    except CommandFailed as failed:
        return last_line(failed)
    return ""


@pytest.fixture(scope="session")
def need(config: Config) -> Need:
    """Skip the test unless git reaches the sources of these names."""

    def check(*names: str) -> None:
        for name in names:
            if why := unreachable(config.sources.repositories[name].url):
                pytest.skip(f"{name} cannot be reached: {why}")

    return check


@pytest.fixture(scope="session")
def cache() -> Path:
    """The machine's own source cache: what a build has fetched is not fetched again."""
    return cache_folder()


@pytest.fixture(scope="session")
def survey(config: Config, cache: Path, need: Need) -> list[PatchStatus]:
    need(*{name for release in config.sources.releases for name in config.sources.built(release)})
    return list(patched.survey(config, (), cache, print))

"""The real sources, in whatever way this machine's git reaches them; a test skips without those it needs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.host.git import git, last_line
from ftbuild.host.paths import cache_folder
from ftbuild.host.shell import CommandFailed
from ftbuild.sources import fetch, patched
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import PatchStatus
from testing import ROOT, patience

from .conversions import Tensors, TorchWorker

PATIENCE_SECONDS = 10.0
# The first test on a machine fetches the sources of every release.
TIMEOUT_SECONDS = 900
Need = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    patience.give(items, Path(__file__).parent, TIMEOUT_SECONDS)


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


@pytest.fixture(scope="session")
def worker() -> Iterator[TorchWorker]:
    python = os.environ.get("FTBUILD_TORCH_PYTHON", sys.executable)
    find = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    if subprocess.run([python, "-c", find, "torch", "transformers", "safetensors"], check=False).returncode:
        pytest.skip("needs a Python with torch, transformers and safetensors: FTBUILD_TORCH_PYTHON")
    process = TorchWorker(python)
    yield process
    process.close()


@pytest.fixture(scope="session")
def tree(
    config: Config, cache: Path, need: Need, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """FasterTransformer of a release, or another repository, with our patches."""
    trees: dict[tuple[str, str], Path] = {}

    def make(release: str, name: str = "ft") -> Path:
        need(name)
        if (release, name) not in trees:
            folder = tmp_path_factory.mktemp(f"{name}-{release}")
            fetch.export(config, release, name, cache, folder)
            version = config.version(release, name)
            for entry in series.applicable(series.read_series(config)[name], version):
                series.apply(folder, entry, fetch.entry_diff(config, entry, cache), version=version)
            trees[release, name] = folder
        return trees[release, name]

    return make


@pytest.fixture(scope="session")
def checkpoint(
    worker: TorchWorker, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Tensors]]:
    """A tiny random checkpoint of a kind, and its tensors by transformers' names."""
    made: dict[str, Path] = {}

    def make(kind: str) -> tuple[Path, Tensors]:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            worker("make", kind, f"{made[kind]}/hf", f"{made[kind]}/tensors.npz")
        return made[kind] / "hf", dict(np.load(made[kind] / "tensors.npz"))

    return make

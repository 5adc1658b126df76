"""A copy of the real configuration that a test may spoil; no engine, and no password of another test."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.config import document, loader
from ftbuild.config.schema import Config
from ftbuild.host import redaction
from testing import ROOT


@pytest.fixture(scope="session")
def config() -> Config:
    return loader.load(ROOT / "buildcfg")


@pytest.fixture(scope="session", autouse=True)
def each_text_is_parsed_once() -> Iterator[None]:
    """Hundreds of tests load copies of the configuration that differ in one file: the others are known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "parsed", functools.lru_cache(maxsize=24)(document.parsed))
        yield


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "buildcfg"
    folder.mkdir()
    for file in (ROOT / "buildcfg").glob("*.yaml"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture(autouse=True)
def passwords_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards what a test has remembered: it may be a word of another one's messages."""
    monkeypatch.setattr(redaction, "_known", set(redaction._known))


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the engine of this machine: a test that asks it, and passes, would fail where none is."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


@pytest.fixture
def memory() -> Iterator[None]:
    """Fail when the test makes this process much larger."""
    from testing import outcomes  # it loads hypothesis and all commands, which few tests need

    with outcomes.limited_memory():
        yield

"""A copy of the real configuration that a test may spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.config.schema import Config
from testing import ROOT


@pytest.fixture(scope="session")
def config() -> Config:
    return loader.load(ROOT / "buildcfg")


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "buildcfg"
    folder.mkdir()
    for file in (ROOT / "buildcfg").glob("*.yaml"):
        shutil.copy(file, folder)
    return folder

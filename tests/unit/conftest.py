"""A copy of the real configuration that a test may spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ftbuild import config as configuration
from ftbuild.config import Config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def config() -> Config:
    return configuration.load(ROOT / "buildcfg")


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "buildcfg"
    folder.mkdir()
    for file in (ROOT / "buildcfg").glob("*.yaml"):
        shutil.copy(file, folder)
    return folder

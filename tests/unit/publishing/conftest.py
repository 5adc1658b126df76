"""A real registry on this machine, and a repository in it for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.publishing.names import Names
from testing.registries import Registry, plain
from tests.unit.publishing.shelf import Shelf


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with plain(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def shelf(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    for name, value in registry.environment.items():
        monkeypatch.setenv(name, value)
    name = f"{registry.prefix}/image-{uuid.uuid4().hex[:8]}"
    return Shelf(Names(name, name), tmp_path / "work", [])

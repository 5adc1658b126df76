from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import bundle, fetch

from .conftest import Need

RELEASE = "22.12"


@pytest.fixture
def names(config: Config, need: Need) -> list[str]:
    """The sources of a build."""
    built = list(config.sources.built(RELEASE))
    need(*built)
    return built


def test_what_cmake_looks_for_lies_where_it_looks(
    config: Config, cache: Path, names: list[str], tmp_path: Path
) -> None:
    fetch.fetch_release(config, RELEASE, cache)
    for name in sorted(names, key=lambda n: config.sources.repositories[n].path):
        fetch.export(config, RELEASE, name, cache, tmp_path / config.sources.repositories[name].path)
    for file in (
        "ft/CMakeLists.txt",
        "ft/3rdparty/cutlass/include/cutlass/cutlass.h",
        "ft/3rdparty/cutlass/tools/util/include/cutlass/util/host_tensor.h",
        "backend/CMakeLists.txt",
        "repo-core-src/include/triton/core/tritonbackend.h",
        "common/CMakeLists.txt",
        "triton-backend/CMakeLists.txt",
    ):
        assert (tmp_path / file).is_file(), file
    assert not (tmp_path / "ft/3rdparty/cutlass/media").exists()


@pytest.mark.usefixtures("names")
def test_a_bundle_of_one_release_carries_it_without_network(
    config: Config, cache: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "sources.tar", tmp_path / "cache"
    bundle.write_bundle(config, file, cache, releases=[RELEASE])
    bundle.read_bundle(config, file, other)
    messages: list[str] = []
    fetch.fetch_release(config, RELEASE, other, report=messages.append)
    assert messages == [], "nothing was fetched"

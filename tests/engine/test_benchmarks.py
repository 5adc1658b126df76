"""Figures that benchmarks read from a real engine and from real git."""

from __future__ import annotations

import io
import os
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness.workspace import Workspace
from benchmarks.tools import layers, window
from benchmarks.tools.transfer import send
from benchmarks.topics import sources
from ftbuild.build import context
from ftbuild.cli import demo
from ftbuild.engine import daemon
from ftbuild.sources import fetch
from testing import ROOT
from testing.sample import copy_of_sample, sample_plan

if TYPE_CHECKING:
    import docker

TEXT = b"the same line again and again\n" * 100_000


@pytest.fixture
def image(client: docker.DockerClient) -> Iterator[str]:
    """Return an image of one layer that compresses well."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        file = tarfile.TarInfo("text")
        file.size = len(TEXT)
        archive.addfile(file, io.BytesIO(TEXT))
    name = f"ftbuild-test-{uuid.uuid4().hex[:12]}"
    client.api.import_image_from_data(content.getvalue(), repository=name, tag="1")
    yield f"{name}:1"
    client.images.remove(f"{name}:1")


@pytest.mark.skipif(which("zstd") is None, reason="zstd is not installed")
def test_layers_are_measured_unpacked_and_compressed(
    client: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    if daemon.keeps_attestations(client.info()):
        pytest.skip("this engine keeps layers compressed")
    (layer,) = layers.read(client, image, tmp_path)
    assert len(TEXT) < layer.unpacked < len(TEXT) + 20_000
    assert 0 < layer.gzip < layer.unpacked / 20
    assert 0 < layer.zstd < layer.unpacked / 20
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def workspace(sample_repositories: Path, tmp_path: Path) -> Workspace:
    folder = copy_of_sample(tmp_path / "sample")
    sources = folder / "sources.yaml"  # git clone takes no path that is not there
    sources.write_text(sources.read_text().replace(f"{ROOT}/{demo.REPOSITORIES}", str(sample_repositories)))
    return Workspace(folder, tmp_path, jobs=2, rounds=1)


def test_a_second_transfer_sends_only_changes(
    client: docker.DockerClient, workspace: Workspace, tmp_path: Path
) -> None:
    base = sample_plan().base.serving
    if daemon.image(client, base) is None:
        pytest.skip(f"there is no image {base}")
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "text").write_bytes(TEXT)
    recipe = tmp_path / f"transfer-{uuid.uuid4().hex}"
    first, second = (send(base, tmp_path / "sources", recipe) for _ in range(2))
    assert first.size >= len(TEXT)
    assert second.size < first.size / 10


def test_the_largest_layer_is_imported_by_each_window(
    client: docker.DockerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    base = sample_plan().base.serving
    if daemon.image(client, base) is None:
        pytest.skip(f"there is no image {base}")
    window.main(
        [base, "--windows", "20", "24", "--rounds", "1", "--pause", "0", "--dockerd", str(os.getpid())]
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines] == [["1", "MiB"], ["16", "MiB"]]
    narrow, wide = (float(line[2]) for line in lines)
    assert 1 < wide <= narrow
    assert not client.images.list(name="ftbuild-bench-window")


def test_fetched_bytes_are_counted_and_missing_submodules_named(workspace: Workspace) -> None:
    config, plan, cache = workspace.load(), workspace.plan(), workspace.work / "cache"
    fetch.fetch_release(config, plan.cell.triton, cache, report=lambda line: None)
    assert sources.packed(cache) > 10_000
    cloned, absent = sources.clones(config, plan, workspace.work / "clones")
    assert set(cloned) == {s.repository for s in plan.sources} - {"cutlass"}
    assert absent == ["3rdparty/cutlass"]
    used = sources.staging(plan, cache, workspace.work / "staged")
    assert used.wall >= 0.0 < used.cpu
    weights = sources.weigh(workspace.work / "staged" / context.SOURCES)
    assert weights[".git"] == 0
    assert sum(weights.values()) > weights["tests"] > 0

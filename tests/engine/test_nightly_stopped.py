"""Nightly runs that are stopped by a signal: what they leave, and how they are resumed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testing import nightly
from testing.nightly import NEW_SOURCE, is_good, new_source, patch, published, repatch, tags_of
from testing.registries import Registry
from testing.waiting import until
from tests.engine.conftest import new_cache

if TYPE_CHECKING:
    import docker

IMAGE = "triton_with_ft_sample_night_stopped"


@pytest.fixture(autouse=True)
def tidy_images(client: docker.DockerClient, sample_repositories: None) -> Iterator[None]:
    with nightly.tidy(client, IMAGE):
        yield


def test_a_stopped_run_leaves_nothing_behind_and_is_resumed_with_its_cells(
    client: docker.DockerClient, base_registry: Registry, tmp_path: Path
) -> None:
    here = nightly.place(base_registry, new_cache(tmp_path), tmp_path, IMAGE, "22.07-sm80", "22.12-sm80")
    patch(here.config, "==5.2", NEW_SOURCE, new_source())
    before = containers(client)
    process = here.start()
    assert until(lambda: here.logs("Building CUDA object"))
    second = here.start()
    assert "another nightly run is active on this machine" in second.communicate(timeout=100)[0]
    assert second.returncode == 4
    process.send_signal(signal.SIGINT)
    stopped = [here.end(process), here.signalled(signal.SIGTERM, "verifying both", "--resume")]
    for ended in stopped:
        assert ended.code == ended.run.exit_code == 130
        assert ended.outcomes["22.07-sm80"] == ("skipped", "not-run")
        assert "Interrupted" in ended.reports["report.md"]
        assert not ended.tags & {"22.07-sm80", "22.07-sm80-sdk"}
    assert not here.children()
    left = containers(client) - before  # also some of tests that run at the same time, which end
    assert until(lambda: not left & containers(client))
    # A user who only resumes types no selection.
    resumed = here.only()
    repatch(here.config, NEW_SOURCE, new_source().replace("#include", "no such line"))
    red = resumed.run("--resume")
    assert red.code == red.run.exit_code == 6
    assert red.outcomes["22.07-sm80"] == ("failed", "patch")
    assert red.outcomes["22.12-sm80"] in {("passed", ""), ("skipped", "already-published")}
    assert not red.tags & {"22.07-sm80", "22.07-sm80-sdk"}
    repatch(here.config, NEW_SOURCE, new_source())
    green = resumed.run("--resume")
    assert green.code == 0, green.output[-5000:]
    for ended in (red, green):
        assert ended.folder == stopped[0].folder
        assert set(ended.outcomes) == set(here.cells)
    assert is_good(green)
    assert published(green) == tags_of(green, *here.cells)


def containers(client: docker.DockerClient) -> set[str]:
    return {str(container.id) for container in client.containers.list(all=True, ignore_removed=True)}

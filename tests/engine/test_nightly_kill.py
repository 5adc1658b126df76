"""Nightly runs that are killed at any moment: their tags are true, and they can be resumed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.gates import records, report
from ftbuild.nightly import history
from ftbuild.publishing import remote_image
from ftbuild.registry.client import Repository
from testing import nightly
from testing.chance import SEED, kills, share
from testing.nightly import NEW_SOURCE, Ended, Place, is_good, left_containers, new_source, patch, repatch
from testing.registries import Registry
from tests.engine.conftest import new_cache

if TYPE_CHECKING:
    import docker

IMAGE = "triton_with_ft_sample_night_killed"
KILLS = kills(2)


@pytest.fixture(autouse=True)
def tidy_images(client: docker.DockerClient, sample_repositories: None) -> Iterator[None]:
    with nightly.tidy(client, IMAGE):
        yield


def test_a_run_killed_at_any_moment_leaves_correct_tags_and_can_be_resumed(
    client: docker.DockerClient, base_registry: Registry, tmp_path: Path
) -> None:
    """Kill FTBUILD_KILLS runs, at moments spread over the time that an undisturbed run takes.

    FTBUILD_SEED repeats the moments of another run.
    """
    here = nightly.place(base_registry, new_cache(tmp_path), tmp_path, IMAGE, "22.07-sm80", "22.12-sm80")
    patch(here.config, "==5.2", NEW_SOURCE, new_source())
    # Its images and what the gates found are there in the runs that follow.
    assert here.only("22.12-sm80").run().code == 0
    undisturbed = replace(here, registry=f"{here.registry}/undisturbed").run()
    assert undisturbed.code == 0, undisturbed.output[-5000:]
    seconds = undisturbed.run.seconds
    moments = [share(n, KILLS) * seconds for n in range(KILLS)]
    random.Random(SEED).shuffle(moments)
    print(f"seed {SEED}")
    for number, moment in enumerate(moments):
        repatch(here.config, NEW_SOURCE, new_source())
        trial = replace(here, registry=f"{here.registry}/{number}")
        before, ended = killed(client, trial, moment)
        assert ended.code == 0, ended.output[-5000:]
        assert is_good(ended)
        assert shape(ended) == shape(undisturbed)
        after = images(client)
        kept = [name for name in local(ended) if name in before]
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        assert set(local(ended)) <= set(after)
        outcomes = ", ".join(f"{cell} {' '.join(outcome)}" for cell, outcome in ended.outcomes.items())
        print(f"kill {number + 1} after {moment:.1f} of {seconds:.1f} s: {len(kept)} images of 4 were there,")
        print(f"  {len(left_containers(client, IMAGE))} containers left so far; then {outcomes}", flush=True)


def killed(client: docker.DockerClient, here: Place, moment: float) -> tuple[dict[str, str], Ended]:
    """Kill a run after that many seconds and resume it; return the images it had, and how it ended."""
    earlier = set(history.folders(here.work))
    with here.start() as process:
        time.sleep(moment)
        process.kill()
    assert here.quiet(), here.children()
    assert_tags_are_true(here)
    begun = set(history.folders(here.work)) - earlier
    return images(client), here.run(*(["--resume"] if begun else []))


def assert_tags_are_true(here: Place) -> None:
    """Fail unless every tag refers to an image that has passed both gates."""
    folders = list(here.work.glob("22.*/*"))
    passed = {gate: passing(gate, folders) for gate in (report.VERIFY, report.SMOKE)}
    repository = Repository(here.repository)
    for tag in (tag for tag in here.tags() if not tag.startswith("staging-")):
        image = remote_image.read(repository, tag)
        assert image is not None
        for gate, ids in passed.items():
            assert image.ids & ids, f"{tag} has not passed {gate.name}"


def passing(gate: report.Gate, folders: Sequence[Path]) -> frozenset[str]:
    """Return the ids of all images that passed a gate."""
    found = (records.read(gate, folder) for folder in folders)
    return frozenset(image for record in found if record and record.passed for image in record.ids.values())


def shape(ended: Ended) -> set[str]:
    """Return the tags of both cells in the registry, with `KEY` for their input keys."""
    keys = {record.key: record.cell for record in ended.run.cells}
    return {next((tag.replace(key, "KEY") for key in keys if key in tag), tag) for tag in ended.tags}


def images(client: docker.DockerClient) -> dict[str, str]:
    """Return the ids of all images of nightly runs, by name."""
    return {tag: str(image.id) for image in client.images.list(name=IMAGE) for tag in image.tags}


def local(ended: Ended) -> list[str]:
    """Return the immutable names of both images of all cells."""
    names = (f"{IMAGE}:{record.cell}-{record.key}" for record in ended.run.cells)
    return [f"{name}{suffix}" for name in names for suffix in ("", "-sdk")]

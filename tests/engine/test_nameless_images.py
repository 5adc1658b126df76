"""Images that lose their last name to another one: none is left on the engine, and a test run names those."""

from __future__ import annotations

import contextlib
import io
import tarfile
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from ftbuild.engine import daemon
from testing import tidiness

if TYPE_CHECKING:
    import docker

Make = Callable[[], str]


@pytest.fixture
def name() -> str:
    return f"ftbuild-test:{uuid.uuid4().hex}"


@pytest.fixture
def make(client: docker.DockerClient, name: str) -> Iterator[Make]:
    """Gives the name to a new image, whose id it returns."""
    made = []

    def new() -> str:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.addfile(tarfile.TarInfo(uuid.uuid4().hex))
        repository, tag = name.split(":")
        client.api.import_image_from_data(content.getvalue(), repository=repository, tag=tag)
        made.append(str(client.images.get(name).id))
        return made[-1]

    yield new
    for left in made:
        if daemon.image(client, left):
            client.images.remove(left, force=True)


def test_an_image_that_is_replaced_goes(client: docker.DockerClient, name: str, make: Make) -> None:
    first = make()
    with daemon.replacing(client, name, "ftbuild-test:nothing"):
        second = make()
        assert daemon.image(client, first), "not while the block may still give it a name"
    assert daemon.image(client, first) is None
    assert str(client.images.get(name).id) == second


def test_it_goes_where_the_block_fails_as_well(client: docker.DockerClient, name: str, make: Make) -> None:
    first = make()
    with contextlib.suppress(KeyboardInterrupt), daemon.replacing(client, name):
        make()
        raise KeyboardInterrupt
    assert daemon.image(client, first) is None


def test_what_has_another_name_or_a_container_stays(
    client: docker.DockerClient, name: str, make: Make
) -> None:
    named, used = make(), ""
    client.images.get(named).tag(other := f"ftbuild-test-{uuid.uuid4().hex}", "1")
    with daemon.replacing(client, name):
        used = make()
    user = client.containers.create(used, ["/none"])
    try:
        with daemon.replacing(client, name):
            make()
        assert daemon.image(client, named)
        assert daemon.image(client, used)
    finally:
        user.remove()
        client.images.remove(f"{other}:1")


def test_what_stays_is_kept_where_the_name_does(client: docker.DockerClient, name: str, make: Make) -> None:
    first = make()
    with daemon.replacing(client, name):
        pass
    assert str(client.images.get(name).id) == first


def test_the_list_of_what_a_run_leaves_has_images_without_a_name(make: Make) -> None:
    first, before = make(), tidiness.snapshot()
    make()
    assert f"image without a name: {first[:19]}" in tidiness.snapshot() - before

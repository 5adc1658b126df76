"""What is read back after a push or a new tag, and an inventory: it is about this very image, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import PublishError
from ftbuild.plan import Plan
from ftbuild.publishing import inventories, names, push, tagging
from ftbuild.publishing.names import Names
from testing.registries import Registry, faulty
from tests.unit.publishing.shelf import Image, Shelf
from tests.unit.publishing.test_publish import plan_of

TAG = "22.12-sm86"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with faulty(tmp_path / "registry") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def shelf(registry: Registry, tmp_path: Path) -> Shelf:
    name = f"{registry.prefix}/image"
    return Shelf(Names(name, name), tmp_path / "work", [])


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture
def images(shelf: Shelf, cell: Plan) -> tuple[Image, Image]:
    """Two images in the registry."""
    return shelf.image(cell, "runtime", "first"), shelf.image(cell, "runtime", "second")


@pytest.mark.parametrize("status", [200, 404])
def test_a_tag_that_points_elsewhere_after_it_was_set_is_an_error(
    shelf: Shelf, registry: Registry, images: tuple[Image, Image], status: int
) -> None:
    """Another run publishes the same cell, or the registry rewrites manifests."""
    wanted, other = (image.manifest for image in images)
    repository = shelf.repository
    tagging.set_tag(repository, wanted.digest, repository, TAG, shelf.said.append)
    registry.proxy_faults.answer(
        f"^HEAD .*/manifests/{TAG}$",
        status,
        Docker_Content_Digest=other.digest,
        Content_Type=other.media_type,
    )
    with pytest.raises(PublishError, match="does not point to the digest that it was set to") as refused:
        tagging.set_tag(repository, wanted.digest, repository, TAG, shelf.said.append)
    assert f"{other.digest if status == 200 else 'nothing'} instead of {wanted.digest}" in str(refused.value)


def engine(image: str = "", pushes: str = "") -> Any:
    """Return an engine that has one image, and tells that it pushed the manifest of this digest."""
    told = [{"status": "Pushed"}, {"aux": {"Digest": pushes}}]
    found = SimpleNamespace(id=image, tag=lambda *words: None)
    return SimpleNamespace(
        images=SimpleNamespace(get=lambda name: found, remove=lambda *words, **more: None),
        api=SimpleNamespace(push=lambda *words, **more: iter(told)),
    )


def test_what_a_push_leaves_in_the_registry_is_the_image_that_was_pushed(
    shelf: Shelf, images: tuple[Image, Image]
) -> None:
    first, second = images

    def pushed(image: Image, digest: str) -> str:
        return push.push_image(
            engine(pushes=digest), image.id, shelf.repository, "second", shelf.said.append
        ).image.descriptor.digest

    assert pushed(first, first.manifest.digest) == first.manifest.digest
    for digest, found in (
        (second.manifest.digest, second.manifest.digest),
        (f"sha256:{'0' * 64}", "nothing"),
    ):
        with pytest.raises(PublishError, match="another image than the one that was pushed") as refused:
            pushed(first, digest)
        assert f"found {found}" in str(refused.value)


def test_an_inventory_of_another_image_does_not_count(shelf: Shelf, cell: Plan) -> None:
    ids = shelf.stage(cell)
    folder = cell.folder(shelf.work)
    assert inventories.read(folder, "runtime", {ids["runtime"]}) is not None
    assert inventories.read(folder, "runtime", {ids["sdk"]}) is None
    local = names.tag(cell, "runtime")
    with pytest.raises(PublishError, match="the local image is not the staged one"):
        inventories.take(engine("sha256:of-another-build"), folder, "runtime", local, {ids["runtime"]})

"""invoke clean with a real engine and a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.build import garbage as builds
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.host.garbage import removal
from ftbuild.plan import PRODUCTS
from ftbuild.publishing import garbage, names
from testing.publishing import CELL, Bench, bench
from testing.registries import Registry, plain

if TYPE_CHECKING:
    import docker


@pytest.fixture
def old_bench(client: docker.DockerClient, tmp_path: Path) -> Iterator[Bench]:
    with bench(client, tmp_path / "bench") as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with plain(tmp_path / "registry") as running:
        yield running


def test_images_of_old_keys_go_unless_a_container_uses_them(
    client: docker.DockerClient, old_bench: Bench
) -> None:
    first, _ = old_bench.tested()
    old_bench.change()
    second, _ = old_bench.tested()
    assert first.key != second.key
    user = client.containers.create(first.tag("sdk"), ["true"])
    try:
        found = {g.name: g for g in builds.images(client, [second], old_bench.work, 0)}
        ours = {first.tag(product) for product in PRODUCTS}
        assert {name for name in found if name.startswith(old_bench.image)} == ours
        assert removal(found[first.tag("sdk")], dry_run=True).state == "to remove"
        assert daemon.image(client, first.tag("sdk"))
        states = {name: removal(found[name], dry_run=False).state for name in ours}
    finally:
        user.remove()
    assert states == {first.tag("runtime"): "removed", first.tag("sdk"): "in use"}
    assert daemon.image(client, first.tag("runtime")) is None
    assert daemon.image(client, second.tag("runtime"))


def test_the_command_lists_without_removing_and_then_removes(old_bench: Bench, registry: Registry) -> None:
    plan = old_bench.plan(*CELL)
    old = old_bench.work / plan.cell.id / "0123456789ab"
    old.mkdir(parents=True)
    (old / "build.log").write_text("text")
    done = old_bench.run(registry, "clean", "--keep", "0", "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    entry = {"kind": "work folder", "name": str(old), "size": 4, "state": "to remove"}
    assert entry in json.loads(done.stdout)
    assert old.exists()


@pytest.mark.parametrize("stage", [None, "waiting"])
def test_staged_tags_of_published_images_go_where_the_registry_can(
    old_bench: Bench, registry: Registry, monkeypatch: pytest.MonkeyPatch, stage: str | None
) -> None:
    for name, value in registry.environment.items():
        monkeypatch.setenv(name, value)
    plan, _ = old_bench.tested()
    options = ["--stage", stage] if stage else []
    assert old_bench.publish(registry, *options).returncode == 0
    image = loader.load(old_bench.config).matrix.image
    found = list(garbage.staged(names.resolve(registry.prefix, stage, image), [plan], 2))
    assert len(found) == len(PRODUCTS)
    outcomes = {each.remove() for each in found}
    # Registries delete by digest; where tags are staged beside published ones, that would take both.
    assert outcomes == ({None} if stage else {"the registry cannot delete a tag"})
    published = old_bench.repository(registry)
    for product in PRODUCTS:
        tag = names.tag(plan, product)
        manifest = published.manifest(tag)
        assert manifest is not None
        assert all(published.head(part.digest) for part in manifest.content.manifests or ())
        if stage:
            assert old_bench.repository(registry, stage).head(tag) is None

"""invoke clean with a real engine and a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.build import garbage as builds
from ftbuild.engine import daemon
from ftbuild.host import marker
from ftbuild.host.garbage import removal
from ftbuild.plan import PRODUCTS
from ftbuild.publishing import garbage, names
from ftbuild.registry.client import Descriptor, Repository
from testing.publishing import CELL, Bench, bench
from testing.registries import Registry, plain
from testing.sample import sample_plan

if TYPE_CHECKING:
    import docker


IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


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
    marker.put(old)
    (old / "build.log").write_text("text")
    done = old_bench.run(registry, "clean", "--keep", "0", "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    entry = {"kind": "work folder", "name": str(old), "size": 4 + len(marker.TEXT), "state": "to remove"}
    assert entry in json.loads(done.stdout)
    assert old.exists()


def put_image(repository: Repository, tag: str, created: str) -> Descriptor:
    """Store an image without layers, and return its descriptor."""
    labels = {"org.opencontainers.image.created": created, "tag": tag}
    settings = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}}
    config = repository.put_blob(json.dumps(settings).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": IMAGE, "config": config.as_dict(), "layers": []}
    return repository.put_manifest(tag, json.dumps(manifest).encode(), IMAGE)


def publish(repository: Repository, tag: str, image: Descriptor) -> None:
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [image.as_dict()]}
    repository.put_manifest(tag, json.dumps(index).encode(), INDEX)


@pytest.mark.parametrize("stage", [None, "waiting"])
def test_staged_tags_of_published_images_and_old_keys_go_where_the_registry_can(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, stage: str | None
) -> None:
    for name, value in registry.environment.items():
        monkeypatch.setenv(name, value)
    plan = sample_plan()
    place = names.resolve(registry.prefix, stage, plan.image)
    staging, published = Repository(place.staging), Repository(place.repository)
    for product in PRODUCTS:
        image = put_image(staging, place.staged(plan, product), "2025-01-01T00:00:00Z")
        if stage:
            image = put_image(published, "pushed", "2025-01-01T00:00:00Z")
        publish(published, names.tag(plan, product), image)
    waiting = [place.staged(plan, "runtime").replace(plan.key, f"{number:012}") for number in range(3)]
    for month, tag in enumerate(waiting, start=1):
        put_image(staging, tag, f"2026-0{month}-01T00:00:00Z")

    found = {each.name.rpartition(":")[2]: each for each in garbage.staged(place, [plan], 2)}
    done = {place.staged(plan, product) for product in PRODUCTS}
    assert found.keys() == {*done, waiting[0]}
    outcomes = {each.remove() for each in found.values()}
    # This registry deletes by digest only; where published tags are beside staged ones, that would take both.
    assert outcomes == ({None} if stage else {"the registry cannot delete a tag"})
    if stage:
        assert set(staging.tags()) == set(waiting[1:])
    for product in PRODUCTS:
        index = published.manifest(names.tag(plan, product))
        assert index is not None
        assert all(published.head(part.digest) for part in index.content.manifests or ())

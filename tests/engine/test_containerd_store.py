"""An engine with containerd's image store: other digests as image ids, and attestations kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.engine import daemon as engine
from ftbuild.gates.report import SMOKE, VERIFY
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import remote_image
from testing import engines
from testing.publishing import CELL, Bench, bench, immutable, inspected, moving
from testing.registries import Registry, plain

if TYPE_CHECKING:
    import docker

SPDX, SLSA = "https://spdx.dev/Document", "https://slsa.dev/provenance/v1"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with plain(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a second engine with this store, and yield its DOCKER_HOST."""
    folder = tmp_path_factory.mktemp("engine")
    store = {"containerd-snapshotter": True}
    with engines.engine(folder, "ftbuild-test", "192.0.2.1/25", features=store) as running:
        yield running.address


@pytest.fixture
def other(host: str, tmp_path: Path) -> Iterator[Bench]:
    """Return a bench on that engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        client = engine.connect()
    with bench(client, tmp_path / "bench") as made:
        yield made
    client.close()


def built(made: Bench, plan: Plan, host: str) -> dict[str, str]:
    """Build images with BuildKit: an index with BuildKit's own provenance."""
    ids = {}
    for product in PRODUCTS:
        labels = [f"--label={key}={value}" for key, value in plan.labels(product).items()]
        argv = [
            "docker",
            "buildx",
            "build",
            "--tag",
            plan.tag(product),
            *labels,
            "--provenance=mode=max",
            "-",
        ]
        shell.run(argv, stdin=f"FROM {made.image}:shell\n", env={"DOCKER_HOST": host}, timeout=120)
        ids[product] = str(made.client.images.get(plan.tag(product)).id)
    return ids


def test_an_engine_with_this_store_is_known_to_keep_attestations(
    other: Bench, client: docker.DockerClient
) -> None:
    assert engine.keeps_attestations(other.client.info())
    storage = client.info()["DriverStatus"]
    assert engine.keeps_attestations(client.info()) == (
        ["driver-type", "io.containerd.snapshotter.v1"] in storage
    )


def test_its_images_are_published_with_the_builders_own_provenance(
    other: Bench, host: str, registry: Registry
) -> None:
    plan = other.plan(*CELL)
    images = built(other, plan, host)
    other.judge(plan, images, VERIFY, SMOKE)
    done = other.publish(registry, DOCKER_HOST=host)
    assert done.returncode == 0, done.stdout + done.stderr
    repository = other.repository(registry)
    for product in PRODUCTS:
        found = remote_image.read(repository, moving(plan)[product])
        assert found
        tags = (immutable(plan)[product], moving(plan)[product])
        assert len({known.digest for known in repository.heads(tags).values() if known}) == 1
        kinds = [
            json.loads(statement)["predicateType"] for statement in remote_image.statements(repository, found)
        ]
        assert kinds[:2] == [SPDX, SLSA]
        assert [kind for kind in kinds[2:] if "slsa.dev/provenance" in kind]
    bill = inspected(f"{repository.name}:{moving(plan)['runtime']}", "{{json .SBOM.SPDX.name}}", registry)
    assert repository.name in bill


def test_records_from_engines_with_different_stores_are_about_one_image(
    other: Bench, host: str, registry: Registry, client: docker.DockerClient
) -> None:
    plan = other.plan("--triton", "22.12", "--sm", "70")
    cell = ("--triton", "22.12", "--sm", "70", "--registry", registry.prefix, "--stage", "waiting")
    other.judge(plan, built(other, plan, host), VERIFY)
    staged = other.run(registry, "registry.stage", *cell, DOCKER_HOST=host)
    assert staged.returncode == 0, staged.stderr
    here = Bench(client, other.config, other.work, other.image)
    try:
        fetched = here.run(registry, "registry.pull", *cell)
        assert fetched.returncode == 0, fetched.stderr
        ids = {product: str(client.images.get(plan.tag(product)).id) for product in PRODUCTS}
        here.judge(plan, ids, SMOKE)
        done = here.run(registry, "publish", *cell)
    finally:
        here.forget()
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(here.repository(registry).heads(moving(plan).values()).values())

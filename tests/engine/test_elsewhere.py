"""What was made elsewhere: images of a registry in place of a build, by their signature and by the gate.

The images are those of the sample cell with another name: nothing is compiled here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.build import objects as build_objects
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import objects, substituted
from ftbuild.publishing.names import Names
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.sources.lock import write_objects
from testing import needs
from testing.publishing import GATES, MARK, Bench, Done, bench
from testing.registries import PASSWORD, Registry, plain
from testing.sample import add_patch, wrong_token

if TYPE_CHECKING:
    import docker

CELL = ("--triton", "22.12", "--sm", "80")
TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Elsewhere:
    """A registry with a signed pair of images, and a machine that has none of them."""

    here: Bench
    registry: Registry
    plan: Plan
    keys: Path

    def build(self, *options: str, **extra: str) -> Done:
        """Run `invoke build` on the machine that has no images."""
        return self.here.run(self.registry, "build", *CELL, *options, **extra)

    @property
    def log(self) -> Path:
        return self.here.folder(self.plan) / "build.log"


def key_pair(folder: Path) -> Path:
    needs.program("cosign")
    folder.mkdir()
    shell.run(["cosign", "generate-key-pair"], cwd=folder, env={"COSIGN_PASSWORD": PASSWORD})
    return folder


def renamed(at: Bench, built: Plan, plan: Plan) -> dict[str, str]:
    """Give the images of the sample cell another name, which their titles have, too; return their ids."""
    for product in PRODUCTS:
        labels = {TITLE: plan.labels(product)[TITLE], MARK: at.image}
        words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        argv = ["docker", "buildx", "build", "--tag", plan.tag(product), *words, "-"]
        shell.run(argv, stdin=f"FROM {built.tag(product)}\n")
    return {product: daemon.require_image(at.client, plan.tag(product)) for product in PRODUCTS}


@pytest.fixture(scope="module")
def elsewhere(
    client: docker.DockerClient, built: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    keys = key_pair(folder / "keys")
    with plain(folder / "registry") as running, bench(client, folder / "bench") as there:
        plan = there.plan(*CELL)
        assert plan.key == built.key
        there.judge(plan, renamed(there, built, plan), *GATES)
        signing = ("--sign-key", str(keys / "cosign.key"), "--no-sign-log")
        done = there.publish(running, *signing, cell=CELL, COSIGN_PASSWORD=PASSWORD)
        assert done.returncode == 0, done.stderr
        yield Elsewhere(replace(there, work=folder / "here"), running, plan, keys)


@pytest.fixture
def bare(elsewhere: Elsewhere) -> Elsewhere:
    """The machine without images and records."""
    for product in PRODUCTS:
        for moving in (False, True):
            if daemon.image(elsewhere.here.client, name := elsewhere.plan.tag(product, moving=moving)):
                elsewhere.here.client.images.remove(name, force=True)
    substituted.discard(elsewhere.here.folder(elsewhere.plan))
    elsewhere.log.unlink(missing_ok=True)
    return elsewhere


def test_a_signed_image_is_pulled_verified_and_tagged_in_place_of_a_build(bare: Elsewhere) -> None:
    done = bare.build("--from", bare.registry.prefix, "--trust", str(bare.keys / "cosign.pub"))
    assert done.returncode == 0, done.stderr
    assert "substituted" in done.stdout
    assert not bare.log.exists()
    there, folder = bare.here.repository(bare.registry), bare.here.folder(bare.plan)
    taken = substituted.read(folder)
    for product in PRODUCTS:
        tag = bare.plan.tag(product)
        head = there.head(tag.rpartition(":")[2])
        assert head
        assert taken[product].name == f"{there.name}@{head.digest}"
        image, moving = (
            daemon.image(bare.here.client, name) for name in (tag, bare.plan.tag(product, moving=True))
        )
        assert image
        assert moving
        assert image.id == moving.id == taken[product].image
        assert f"the {product} image is {there.name}@{head.digest}, signed with the key" in done.stdout
    record = json.loads((folder / "verify.json").read_text())
    assert record["passed"]
    assert {product: image["id"] for product, image in record["images"].items()} == {
        product: each.image for product, each in taken.items()
    }
    again = bare.build("--from", bare.registry.prefix, "--trust", str(bare.keys / "cosign.pub"))
    assert "is already built from these inputs" in again.stdout


def test_what_a_stranger_has_signed_is_refused_and_built(bare: Elsewhere, tmp_path: Path) -> None:
    stranger = key_pair(tmp_path / "stranger")
    done = bare.build(FTBUILD_FROM=bare.registry.prefix, FTBUILD_TRUSTED_KEYS=str(stranger / "cosign.pub"))
    assert done.returncode == 0, done.stderr
    assert "is signed by nobody who is trusted here" in done.stdout
    assert "so this cell is built" in done.stdout
    assert bare.log.exists()
    assert substituted.read(bare.here.folder(bare.plan)) == {}


def test_a_registry_without_a_trusted_key_is_an_error_before_any_work(bare: Elsewhere) -> None:
    done = bare.build("--from", bare.registry.prefix, FTBUILD_TRUSTED_KEYS="", FTBUILD_SIGN_IDENTITY="")
    assert done.returncode == 2
    assert "whose signatures count is not said" in done.stderr


# Objects


def test_after_a_patch_of_one_source_only_that_one_is_compiled(
    elsewhere: Elsewhere, built: Plan, work: Path, sample_copy: Path, tmp_path: Path
) -> None:
    """The second machine has the base and the objects, and nothing that was compiled here before."""
    signer = KeySigner(str(elsewhere.keys / "cosign.key"), public_log=False)
    repository = elsewhere.here.repository(elsewhere.registry).name
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**elsewhere.registry.environment, "COSIGN_PASSWORD": PASSWORD}.items():
            patch.setenv(name, value)
        session = PublishSession(Options(Names(repository, repository), work, signer=signer))
        digest = objects.publish(session, built, print)
    write_objects(loader.load(sample_copy), {built.cell.id: f"{repository}@{digest}"})
    add_patch(sample_copy, "ft", "9000-wrong-token.patch", wrong_token())
    there = replace(elsewhere.here, config=sample_copy, work=tmp_path / "there")
    plan = there.plan(*CELL)
    done = there.run(
        elsewhere.registry, "build", *CELL, "--objects", "--trust", str(elsewhere.keys / "cosign.pub")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    taken = build_objects.read(there.folder(plan))
    assert taken
    compiled = {Path(source).name for sources in taken.compiled.values() for source in sources}
    assert compiled == {"DynamicDecodeLayer.cc"}, taken
    assert all(len(sources) > 1 for sources in taken.found.values()), taken
    assert "--network=none" in (there.folder(plan) / "recipe" / "Dockerfile").read_text()
    for product in PRODUCTS:
        image = daemon.image(there.client, plan.tag(product))
        assert image
        assert image.labels["io.ftbuild.objects"] == f"{repository}@{digest}"
    print(f"objects: {done.stdout}")

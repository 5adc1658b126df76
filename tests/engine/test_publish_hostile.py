"""Who may push to the registry, and has no key: nothing of theirs is signed or built in, and nothing moves.

The registry, the engine, BuildKit and cosign are real. tests/unit/publishing/test_hostile_registry.py tries
every form of such an index with every command that reads one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import from_builder, names, remote_image
from ftbuild.publishing.attest import manifests, provenance, sbom, vex
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.registry.client import Repository
from testing import needs
from testing.publishing import CELL, GATES, Bench, Done, bench, complete_ids, immutable, moving, tar
from testing.registries import PASSWORD, Registry, plain

if TYPE_CHECKING:
    import docker

OCI = "application/vnd.oci.image"
INDEX, MANIFEST, CONFIG = f"{OCI}.index.v1+json", f"{OCI}.manifest.v1+json", f"{OCI}.config.v1+json"
HERE = {"architecture": "amd64", "os": "linux"}


@dataclass(frozen=True)
class Scene:
    """A registry to which everybody may push, a bench that publishes to it, and the key of its owner."""

    bench: Bench
    registry: Registry
    keys: Path

    @property
    def there(self) -> Repository:
        return self.bench.repository(self.registry)

    def publish(self, at: Bench, *options: str) -> Done:
        signing = ("--sign-key", str(self.keys / "cosign.key"), "--no-sign-log")
        return at.publish(self.registry, *signing, *options, COSIGN_PASSWORD=PASSWORD)

    def stage(self) -> Done:
        return self.bench.run(self.registry, "registry.stage", "--registry", self.registry.prefix, *CELL)

    def is_signed(self, reference: str) -> bool:
        argv = ["cosign", "verify", "--key", str(self.keys / "cosign.pub"), "--insecure-ignore-tlog"]
        return shell.run([*argv, f"{self.there.name}{reference}"], check=False, timeout=60).code == 0

    def assert_nothing_is_signed_or_moved(self, plan: Plan) -> None:
        tags = self.there.tags()
        assert not {*moving(plan).values()} & {*tags}
        assert not [tag for tag in tags if self.is_signed(f":{tag}")]

    def elsewhere(self, folder: Path) -> Bench:
        """Return the bench of a machine that has the records of the gates alone."""
        plan = self.bench.plan(*CELL)
        there = replace(self.bench, work=folder)
        there.folder(plan).mkdir(parents=True)
        for gate in GATES:
            shutil.copy(self.bench.folder(plan) / gate.record, there.folder(plan))
        return there


@pytest.fixture
def scene(client: docker.DockerClient, tmp_path: Path) -> Iterator[Scene]:
    needs.program("cosign")
    shell.run(["cosign", "generate-key-pair"], cwd=tmp_path, env={"COSIGN_PASSWORD": PASSWORD})
    with plain(tmp_path / "registry") as running, bench(client, tmp_path / "bench") as made:
        yield Scene(made, running, tmp_path)


def stranger(there: Repository) -> Mapping[str, Any]:
    """Push an image of somebody else, and return its descriptor."""
    layer = tar({"who": b"a stranger"})
    packed = there.put_blob(gzip.compress(layer, mtime=0), f"{OCI}.layer.v1.tar+gzip")
    config = {
        **HERE,
        "config": {"Cmd": ["/who"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    stored = there.put_blob(json.dumps(config).encode(), CONFIG)
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": stored.as_dict(),
        "layers": [packed.as_dict()],
    }
    return there.put_manifest("stranger", json.dumps(content).encode(), MANIFEST).as_dict()


def hide(there: Repository, ours: str, *tags: str) -> None:
    """Put an index under tags that holds the image of a stranger before ours, as what we say of it."""
    image = remote_image.read(there, ours)
    assert image
    about = {"vnd.docker.reference.digest": image.image.descriptor.digest}
    content = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {**stranger(there), "platform": HERE, "annotations": about},
            {**image.image.descriptor.as_dict(), "platform": HERE},
        ],
    }
    for tag in tags:
        there.put_manifest(tag, json.dumps(content).encode(), INDEX)


def staged(plan: Plan, scene: Scene) -> dict[str, str]:
    at = names.resolve(scene.registry.prefix, None, scene.bench.image)
    return {product: at.staged(plan, product) for product in PRODUCTS}


def test_an_index_around_staged_images_is_neither_published_nor_pulled(scene: Scene, tmp_path: Path) -> None:
    plan, images = scene.bench.tested()
    assert scene.stage().returncode == 0
    for tag in staged(plan, scene).values():
        hide(scene.there, tag, tag)
    elsewhere = scene.elsewhere(tmp_path / "elsewhere")
    for product in PRODUCTS:
        scene.bench.client.images.remove(plan.tag(product), force=True)
    done = scene.publish(elsewhere)
    assert done.returncode == 10
    assert "its index holds something else than one image and its attestations" in done.stderr
    scene.assert_nothing_is_signed_or_moved(plan)
    assert not {*immutable(plan).values()} & {*scene.there.tags()}
    pulled = elsewhere.run(scene.registry, "registry.pull", "--registry", scene.registry.prefix, *CELL)
    assert pulled.returncode == 10
    assert "its index holds something else than one image and its attestations" in pulled.stderr
    assert not scene.bench.client.images.list(filters={"reference": plan.tag("runtime")})
    # Who has pushed them knows their digests, and publishes what was tested.
    done = scene.publish(scene.bench)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert image in complete_ids(scene.there, moving(plan)[product])
        assert scene.is_signed(f":{moving(plan)[product]}")


def test_an_index_under_the_immutable_tags_is_not_taken_for_a_published_image(scene: Scene) -> None:
    plan, _ = scene.bench.tested()
    assert scene.stage().returncode == 0
    for product, tag in staged(plan, scene).items():
        hide(scene.there, tag, immutable(plan)[product])
    done = scene.publish(scene.bench)
    assert done.returncode == 10
    assert "its index holds something else than one image and its attestations" in done.stderr
    scene.assert_nothing_is_signed_or_moved(plan)


@pytest.mark.parametrize("products", [PRODUCTS, ("runtime",)], ids=["both", "one"])
def test_statements_that_a_stranger_made_of_a_tested_image_are_not_signed(
    scene: Scene, products: tuple[str, ...]
) -> None:
    plan, _ = scene.bench.tested()
    assert scene.stage().returncode == 0
    said: Mapping[str, Mapping[str, Any]] = {
        sbom.PREDICATE: {"spdxVersion": "SPDX-2.3", "packages": []},
        provenance.PREDICATE: {"buildDefinition": {"buildType": "a stranger's"}},
        vex.PREDICATE: {"statements": []},
    }
    for product in products:
        image = remote_image.read(scene.there, staged(plan, scene)[product])
        assert image
        digest = image.image.descriptor.digest
        texts = [manifests.statement("x", digest, kind, content) for kind, content in said.items()]
        stated = of_index(plan, product, **{"io.ftbuild.gates": "verify,smoke"})
        upload(scene.there, image.image.descriptor, HERE, texts, stated, [immutable(plan)[product]])
    done = scene.publish(scene.bench)
    assert done.returncode == 10
    assert "are not those that ftbuild makes of it" in done.stderr
    scene.assert_nothing_is_signed_or_moved(plan)


def test_a_builder_compiles_in_no_base_that_is_hidden_in_an_index(scene: Scene, tmp_path: Path) -> None:
    plan, images = scene.bench.tested()
    base = replace(plan.base, serving=f"{scene.bench.image}:base", devel=f"{scene.bench.image}:base-devel")
    plan = replace(plan, base=base)
    for name in (base.serving, base.devel):
        scene.bench.client.images.get(images["runtime"]).tag(name)
    at = names.resolve(scene.registry.prefix, None, scene.bench.image)
    session = PublishSession(Options(at, scene.bench.work))
    _, devel = from_builder.push_base(session, plan, report=lambda message: None)
    assert compiled_in(scene, devel, tmp_path / "first") == {"payload"}
    for name in (base.serving, base.devel):
        hide(scene.there, at.staged_base(name), at.staged_base(name))
    with pytest.raises(PublishError, match="something else than one image and its attestations"):
        from_builder.push_base(session, plan, report=lambda message: None)
    # What the builder would have got, had it been told the tag.
    named = f"{scene.there.name}:{at.staged_base(base.devel)}"
    assert compiled_in(scene, named, tmp_path / "second") == {"who"}


def compiled_in(scene: Scene, base: str, folder: Path) -> set[str]:
    """Return which of two files BuildKit finds in a base."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        f"FROM {base} AS base\nFROM scratch\nCOPY --from=base /who* /payload* /\n"
    )
    argv = [
        "docker",
        "buildx",
        "build",
        "--no-cache",
        "--output",
        f"type=local,dest={folder}/out",
        str(folder),
    ]
    shell.run(argv, env=scene.registry.environment, timeout=120)
    return {file.name for file in (folder / "out").iterdir()}


def test_images_of_strangers_under_the_unsmoked_tags_are_not_signed(scene: Scene) -> None:
    plan = scene.bench.plan(*CELL)
    scene.bench.judge(plan, scene.bench.build(plan), VERIFY)
    stranger(scene.there)
    foreign = scene.there.manifest("stranger")
    assert foreign
    for tag in immutable(plan).values():
        scene.there.put_manifest(f"{tag}{names.UNSMOKED}", foreign.raw, MANIFEST)
    done = scene.publish(scene.bench, "--allow-unsmoked")
    assert done.returncode == 10
    assert "it has not passed verify, but nothing" in done.stderr
    scene.assert_nothing_is_signed_or_moved(plan)

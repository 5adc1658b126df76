"""What was made elsewhere: images of a registry in place of a build, by their signature and by the gate.

Both machines are this one, with work folders of their own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild import pipeline
from ftbuild.build import objects as build_objects
from ftbuild.build.base import is_comparable, is_present
from ftbuild.build.run import BuildOptions
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.gates.report import SMOKE
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import gate
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import bases, layers, objects, rebuild, remote_image, substituted
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.names import Names
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.substitution import Substitutes
from ftbuild.publishing.verifying import PublicKey
from ftbuild.registry.client import Repository
from ftbuild.sources.lock import write_objects
from testing import built_images, needs
from testing.publishing import Bench, Done
from testing.registries import PASSWORD, Registry
from testing.sample import add_patch, copy_of_sample, use_small_base, wrong_token

if TYPE_CHECKING:
    import docker

CELL = ("--triton", "22.12", "--sm", "80")


@dataclass(frozen=True)
class Elsewhere:
    """A registry with a signed pair of images, and a machine that has none of them."""

    here: Bench
    there: Bench
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


@pytest.fixture(scope="module")
def elsewhere(
    client: docker.DockerClient,
    base_registry: Registry,
    sample_repositories: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Elsewhere]:
    """Build the sample cell on the small base, and publish it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    keys, image = key_pair(folder / "keys"), f"ftbuild-test-{uuid.uuid4().hex[:12]}"
    config = copy_of_sample(folder, image)
    use_small_base(config)
    there = Bench(client, config, folder / "there", image)
    plan = there.plan(*CELL)
    try:
        made = there.run(base_registry, "build", *CELL)
        assert made.returncode == 0, made.stdout + made.stderr
        images = {product: daemon.require_image(client, plan.tag(product)) for product in PRODUCTS}
        there.judge(plan, images, SMOKE)
        signing = ("--sign-key", str(keys / "cosign.key"), "--no-sign-log")
        done = there.publish(base_registry, *signing, cell=CELL, COSIGN_PASSWORD=PASSWORD)
        assert done.returncode == 0, done.stderr
        yield Elsewhere(replace(there, work=folder / "here"), there, base_registry, plan, keys)
    finally:
        built_images.remove(client, image)


@pytest.fixture
def bare(elsewhere: Elsewhere) -> Elsewhere:
    """The machine without images and records."""
    for product in PRODUCTS:
        for moving in (False, True):
            if daemon.image(elsewhere.here.client, name := elsewhere.plan.tag(product, moving=moving)):
                elsewhere.here.client.images.remove(name, force=True)
    substituted.RECORD.discard(elsewhere.here.folder(elsewhere.plan))
    elsewhere.log.unlink(missing_ok=True)
    return elsewhere


def test_a_signed_image_is_pulled_verified_and_tagged_in_place_of_a_build(bare: Elsewhere) -> None:
    done = bare.build("--from", bare.registry.prefix, "--trust", str(bare.keys / "cosign.pub"))
    assert done.returncode == 0, done.stderr
    assert "substituted" in done.stdout
    assert "verifying the runtime image meanwhile" in done.stdout
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


def test_after_a_patch_of_one_source_only_that_one_is_compiled(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """The second machine has the base and the objects, and none of what was compiled here before."""
    signer = KeySigner(str(elsewhere.keys / "cosign.key"), public_log=False)
    repository = elsewhere.here.repository(elsewhere.registry).name
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**elsewhere.registry.environment, "COSIGN_PASSWORD": PASSWORD}.items():
            patch.setenv(name, value)
        session = PublishSession(Options(Names(repository, repository), elsewhere.there.work, signer=signer))
        digest = objects.publish(session, elsewhere.plan, print)
    config = tmp_path / "buildcfg"
    shutil.copytree(elsewhere.here.config, config)
    shutil.copytree(elsewhere.here.config.parent / "patches", tmp_path / "patches")
    write_objects(loader.load(config), {elsewhere.plan.cell.id: f"{repository}@{digest}"})
    add_patch(config, "ft", "9000-wrong-token.patch", wrong_token())
    there = replace(elsewhere.here, config=config, work=tmp_path / "work")
    plan = there.plan(*CELL)
    done = there.run(
        elsewhere.registry, "build", *CELL, "--objects", "--trust", str(elsewhere.keys / "cosign.pub")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    taken = build_objects.RECORD.read(there.folder(plan))
    assert taken
    compiled = {Path(source).name for sources in taken.compiled.values() for source in sources}
    assert compiled == {"DynamicDecodeLayer.cc"}, taken
    assert all(len(sources) > 1 for sources in taken.found.values()), taken
    assert "--network=none" in (there.folder(plan) / "recipe" / "Dockerfile").read_text()
    for product in PRODUCTS:
        image = daemon.image(there.client, plan.tag(product))
        assert image
        assert image.labels["io.ftbuild.objects"] == f"{repository}@{digest}"


# Bases


@pytest.fixture
def renamed(elsewhere: Elsewhere) -> Iterator[Plan]:
    """The cell on a base whose images are those of its own, with names that nothing else uses."""
    client, base = elsewhere.here.client, elsewhere.plan.base
    name = f"ftbuild-base-test:{uuid.uuid4().hex[:12]}"
    plan = replace(elsewhere.plan, base=replace(base, serving=name, devel=f"{name}-devel"))
    for image, named in ((base.serving, plan.base.serving), (base.devel, plan.base.devel)):
        daemon.tag(client, image, named)
    yield plan
    for each in (plan.base.serving, plan.base.devel, plan.base.tools):
        if daemon.image(client, each):
            client.images.remove(each, force=True)


@pytest.fixture
def session(elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishSession:
    """A session that signs with our key."""
    for variable, value in {**elsewhere.registry.environment, "COSIGN_PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(variable, value)
    there = Names(*[elsewhere.here.repository(elsewhere.registry).name] * 2)
    signer = KeySigner(str(elsewhere.keys / "cosign.key"), public_log=False)
    return PublishSession(Options(there, tmp_path, signer=signer))


def test_a_signed_base_is_pulled_and_one_of_a_stranger_is_not(
    elsewhere: Elsewhere, renamed: Plan, session: PublishSession, tmp_path: Path
) -> None:
    client, plan, there = elsewhere.here.client, renamed, session.options.names
    names = [plan.base.serving, plan.base.devel]
    said: list[str] = []
    bases.publish(session, plan, said.append)
    ids = {name: daemon.require_image(client, name) for name in names}
    for name in names:
        client.images.remove(name)
    theirs = PublicKey(str(key_pair(tmp_path / "theirs") / "cosign.pub"))
    bases.take(Substitutes(there, [theirs], tmp_path), client, plan, tmp_path, said.append)
    assert "so it is made here" in said[-1]
    assert not [name for name in names if daemon.image(client, name)]
    ours = PublicKey(str(elsewhere.keys / "cosign.pub"))
    bases.take(Substitutes(there, [ours], tmp_path), client, plan, tmp_path, said.append)
    assert {name: daemon.require_image(client, name) for name in names} == ids
    assert is_present(client, plan, tmp_path, said.append)
    said.clear()
    bases.publish(session, plan, said.append)
    assert said == []  # nothing to do
    repository = session.repository
    other = repository.manifest(bases.tag(names[1]))
    assert other
    repository.put_manifest(bases.tag(names[0]), other.raw, other.descriptor.media_type)
    with pytest.raises(PublishError, match="another image under base-test-"):
        bases.publish(PublishSession(Options(there, tmp_path)), plan, said.append)


def test_verify_finds_with_the_tools_of_a_base_what_it_finds_with_its_compiler_image(
    elsewhere: Elsewhere, renamed: Plan, session: PublishSession, tmp_path: Path
) -> None:
    client, plan, said = elsewhere.here.client, renamed, list[str]()
    assert elsewhere.build().returncode == 0
    images = {product: elsewhere.plan.tag(product) for product in PRODUCTS}
    subject = Subject(client, plan, tmp_path / "absent", tmp_path, said.append)
    whole = gate.verify(subject, images=images)
    bases.publish(session, plan, said.append)
    for name in (plan.base.serving, plan.base.devel):
        client.images.remove(name)
    substitutes = Substitutes(
        session.options.names, [PublicKey(str(elsewhere.keys / "cosign.pub"))], tmp_path
    )
    options = BuildOptions(tmp_path, tmp_path)
    pipeline.make_bases([plan], options, None, substitutes, compiles=False, report=said.append)
    assert said[-1] == f"base {plan.base.name}: {plan.base.serving}, {plan.base.tools}"
    assert is_comparable(client, plan, tmp_path, said.append)
    assert not daemon.image(client, plan.base.devel)
    assert gate.verify(subject, images=images).results == whole.results
    assert [result.facts for result in whole.results if result.check == "machine code" and result.facts]
    weight = [client.images.get(name).attrs["Size"] for name in (plan.base.tools, plan.base.serving)]
    assert weight[0] - weight[1] < 8_000_000


# Built again


def test_an_image_is_built_again_and_the_statement_verified_and_one_changed_byte_is_named(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    there = elsewhere.here.repository(elsewhere.registry)
    head = there.head(elsewhere.plan.tag("runtime").rpartition(":")[2])
    assert head
    name, work = f"{there.name}@{head.digest}", replace(elsewhere.here, work=tmp_path)
    signing = ("--sign-key", str(elsewhere.keys / "cosign.key"), "--no-sign-log")
    done = work.run(elsewhere.registry, "rebuild", name, "--cached", *signing, COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "layers are equal" in done.stdout
    options = ["--key", str(elsewhere.keys / "cosign.pub"), "--insecure-ignore-tlog=true"]
    argv = ["cosign", "verify-attestation", "--type", rebuild.PREDICATE, *options, name]
    payload = json.loads(shell.run(argv, timeout=60).stdout.splitlines()[0])["payload"]
    said = json.loads(base64.b64decode(payload))
    assert said["predicate"]["verdict"] == "equal"
    assert said["predicate"]["rebuilder"]["usedCaches"] is True
    assert said["subject"][0]["digest"]["sha256"] == head.digest.partition(":")[2]

    other = changed(there, head.digest)
    done = work.run(elsewhere.registry, "rebuild", other, "--cached", *signing, COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 8, done.stdout + done.stderr
    assert "usr/local/bin/ftbuild-image: content" in done.stdout
    assert "nothing is attached" in done.stderr


def changed(there: Repository, digest: str) -> str:
    """Publish the image with one byte of one file changed, with a provenance that says nothing of that."""
    found = remote_image.read(there, digest)
    assert found
    assert found.image.content.config
    image, config = json.loads(found.image.raw), json.loads(there.part(found.image.content.config))
    for number, part in enumerate(found.image.content.layers or []):
        if part.size > 1_000_000:
            continue
        text = b"".join(layers.unpacked(there, part, "a layer"))
        if b"usr/local/bin/ftbuild-image" in text:
            at = text.index(b"#!/bin/sh") + len("#!/bin/sh")
            text = text[:at] + b" " + text[at + 1 :]
            stored = there.put_blob(text, "application/vnd.oci.image.layer.v1.tar")
            image["layers"][number] = stored.as_dict()
            config["rootfs"]["diff_ids"][number] = f"sha256:{hashlib.sha256(text).hexdigest()}"
    kept = there.put_blob(json.dumps(config).encode(), image["config"]["mediaType"])
    image["config"] = kept.as_dict()
    made = there.put_manifest("changed", json.dumps(image).encode(), found.image.descriptor.media_type)
    old, new = (each.encode() for each in (found.image.descriptor.digest[7:], made.digest[7:]))
    statements = [text.replace(old, new) for text in remote_image.statements(there, found)]
    platform = {"architecture": config["architecture"], "os": config["os"]}
    return f"{there.name}@{upload(there, made, platform, statements, {}).digest}"

"""Publishing to a registry to which others push too: what gets a signature or a tag, and what does not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ftbuild.build import definitions
from ftbuild.config.holes import Known
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon
from ftbuild.errors import HostError, PublishError
from ftbuild.gates.report import SMOKE, VERIFY, Gate
from ftbuild.host import locks, shell
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.publishing import committed, names, remote_image, signing, tagging, untested
from ftbuild.publishing.attest import manifests, provenance, sbom, vex
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.attestations import GATES
from ftbuild.publishing.names import Names
from ftbuild.publishing.publish import Outcome, Published
from ftbuild.publishing.signing import KeySigner
from ftbuild.registry.client import digest_of
from testing import needs
from testing.registries import PASSWORD
from tests.unit.publishing.shelf import INDEX, Recorder, Shelf
from tests.unit.publishing.test_engine_side import Engine, told
from tests.unit.publishing.test_publish import plan_of

OF = "vnd.docker.reference.digest"
Change = Callable[[Shelf, Plan, dict[str, Any]], None]


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two private keys of cosign, ours and another one."""
    needs.program("cosign")
    made = []
    for name in ("ours", "theirs"):
        folder = tmp_path_factory.mktemp(name)
        shell.run(["cosign", "generate-key-pair"], cwd=folder, env={"COSIGN_PASSWORD": PASSWORD})
        made.append(folder / "cosign.key")
    return made[0], made[1]


@pytest.fixture(scope="module")
def our_signer(keys: tuple[Path, Path]) -> KeySigner:
    """Return one for all tests, since cosign takes its time to read a key."""
    return KeySigner(str(keys[0]), public_log=False)


@pytest.fixture
def signer(our_signer: KeySigner, monkeypatch: pytest.MonkeyPatch) -> KeySigner:
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)
    return our_signer


def only(outcomes: list[Outcome]) -> Outcome:
    (found,) = outcomes
    return found


def refused(outcomes: list[Outcome], match: str) -> None:
    found = only(outcomes)
    assert (found.state, found.exit_code) == ("failed", 10)
    assert match in str(found.error)


def signatures(shelf: Shelf) -> list[str]:
    """Return the tags under which cosign stores signatures."""
    return [tag for tag in shelf.repository.tags() if tag.endswith(".sig")]


def statements_of(shelf: Shelf, plan: Plan) -> list[str]:
    """Return the types of the statements about a published runtime image."""
    attached = shelf.repository.manifest(shelf.index(plan, "runtime")["manifests"][1]["digest"])
    assert attached
    layers = json.loads(attached.raw)["layers"]
    return [layer["annotations"]["in-toto.io/predicate-type"] for layer in layers]


def half_published(shelf: Shelf, plan: Plan) -> dict[str, str]:
    """Publish a pair, then take away the moving tags, as if the run had been killed before it set them."""
    assert only(shelf.publish(plan)).state == "published"
    shelf.said.clear()
    return forget_moving(shelf, plan)


def forget_moving(shelf: Shelf, plan: Plan) -> dict[str, str]:
    """Point the moving tags to what is not of ftbuild."""
    for product in PRODUCTS:
        shelf.image(plan, product, names.tag(plan, product, moving=True))
    return shelf.moving(plan)


# What is tested here


def test_a_staged_pair_that_passed_both_gates_is_published_once(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell)).state == "published"
    assert shelf.moving(cell) == shelf.immutable(cell)
    assert len(shelf.moving(cell)) == 2
    before = shelf.immutable(cell)
    assert only(shelf.publish(cell)).state == "present"
    assert shelf.immutable(cell) == before


def test_holes_are_stated_where_any_is_known(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    assert statements_of(shelf, cell) == [
        "https://spdx.dev/Document",
        "https://slsa.dev/provenance/v1",
        "https://openvex.dev/ns/v0.2.0",
    ]


def test_an_image_without_a_known_hole_has_no_statement_about_holes(shelf: Shelf, cell: Plan) -> None:
    clean = replace(cell, holes=Known())
    shelf.tested(clean)
    assert only(shelf.publish(clean)).state == "published"
    assert statements_of(shelf, clean) == [sbom.PREDICATE, provenance.PREDICATE]


def test_a_pair_on_a_base_without_a_digest_is_not_published(shelf: Shelf, cell: Plan) -> None:
    cell = replace(cell, base=replace(cell.base, digest=None, debian=None))
    shelf.tested(cell)
    outcome = only(shelf.publish(cell))
    assert (outcome.state, outcome.exit_code) == ("failed", 10)
    assert "no digest of its base open" in str(outcome.error)
    assert shelf.immutable(cell) == shelf.moving(cell) == {}


def test_what_other_machines_may_have_compiled_is_published_only_on_request(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell, **{definitions.CACHE_LABEL: definitions.REMOTE})
    refused(shelf.publish(cell), "was compiled with a remote compiler cache (CCACHE_REMOTE_STORAGE)")
    assert shelf.immutable(cell) == shelf.moving(cell) == {}
    assert only(shelf.publish(cell, allow_shared_cache=True)).state == "published"


def test_a_run_that_ended_before_the_moving_tags_is_finished(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    half_published(shelf, cell)
    assert only(shelf.publish(cell)).state == "promoted"
    assert shelf.moving(cell) == shelf.immutable(cell)


def kill_between_the_immutable_tags(shelf: Shelf, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftbuild.publishing import tagging

    real = tagging.set_tag

    def once(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tagging, "set_tag", once)
        with pytest.raises(KeyboardInterrupt):
            shelf.publish(plan)
    assert [*shelf.immutable(plan)] == ["runtime"]


def test_a_run_that_ended_between_the_immutable_tags_keeps_the_first_one(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = shelf.tested(cell)
    kill_between_the_immutable_tags(shelf, cell, monkeypatch)
    there = shelf.immutable(cell)
    # The record is another file now, and so its hash in the provenance: the image is the same.
    shelf.judge(cell, images, [VERIFY])
    record = cell.folder(shelf.work) / VERIFY.record
    record.write_text(record.read_text() + "\n")
    assert only(shelf.publish(cell)).state == "published"
    assert shelf.immutable(cell)["runtime"] == there["runtime"]
    assert shelf.moving(cell) == shelf.immutable(cell)


def test_an_immutable_tag_never_changes_even_for_a_pair_that_was_built_again(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.tested(cell)
    kill_between_the_immutable_tags(shelf, cell, monkeypatch)
    there = shelf.immutable(cell)
    shelf.tested(cell)
    refused(shelf.publish(cell), "verify tested another runtime image than the present one")
    assert shelf.immutable(cell) == there
    assert shelf.moving(cell) == {}


# What others pushed


def test_the_annotation_of_the_gates_alone_proves_nothing(
    shelf: Shelf, cell: Plan, signer: KeySigner, tmp_path: Path
) -> None:
    shelf.tested(cell)
    half_published(shelf, cell)
    before = shelf.moving(cell)
    stranger = shelf.elsewhere(tmp_path / "empty")
    for used in (None, signer):
        refused(stranger.publish(cell, signer=used), "there is no record of verify")
    assert shelf.moving(cell) == before
    assert signatures(shelf) == []


def test_records_about_other_images_prove_nothing(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    half_published(shelf, cell)
    before = shelf.moving(cell)
    shelf.tested(cell)
    refused(shelf.publish(cell), "tested another runtime and sdk image")
    assert shelf.moving(cell) == before


def test_a_record_that_cannot_be_read_is_why_nothing_is_published(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    (cell.folder(shelf.work) / SMOKE.record).write_text("{")
    outcome = only(shelf.publish(cell))
    assert (outcome.state, outcome.exit_code) == ("failed", PublishError.exit_code)
    assert shelf.immutable(cell) == shelf.moving(cell) == {}


def with_another_image_first(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    """Hide an image from a reader who takes what says that it is an attestation for one."""
    other = shelf.image(plan, "runtime").manifest
    real = content["manifests"][0]["digest"]
    hidden = {**other.as_dict(), "platform": {"architecture": "amd64", "os": "linux"}}
    content["manifests"].insert(0, {**hidden, "annotations": {OF: real}})


def with_another_platform(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    other = shelf.image(plan, "runtime").manifest
    content["manifests"].append({**other.as_dict(), "platform": {"architecture": "arm64", "os": "linux"}})


def with_another_image_for_attestations(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    other = shelf.image(plan, "runtime").manifest
    content["manifests"][1] |= other.as_dict() | {"platform": {"architecture": "amd64", "os": "linux"}}


def with_the_platform_hidden(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content["manifests"][0]["platform"] = {"architecture": "arm64", "os": "linux"}


def with_attestations_about_another(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    sdk = shelf.index(plan, "sdk")["manifests"][1]
    sdk["annotations"] = content["manifests"][1]["annotations"]
    content["manifests"][1] = sdk


def with_known_holes_of_another(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    """Take SBOM and provenance as they are, and the third statement from the other product."""
    ours, theirs = (
        shelf.repository.manifest(index["manifests"][1]["digest"])
        for index in (content, shelf.index(plan, "sdk"))
    )
    assert ours
    assert theirs
    mixed = json.loads(ours.raw)
    mixed["layers"][2] = json.loads(theirs.raw)["layers"][2]
    assert mixed["layers"][2]["annotations"]["in-toto.io/predicate-type"] == vex.PREDICATE
    raw = json.dumps(mixed).encode()
    stored = shelf.repository.put_manifest(digest_of(raw), raw, ours.descriptor.media_type)
    content["manifests"][1] |= stored.as_dict()


def with_changed_statements(
    shelf: Shelf, content: dict[str, Any], change: Callable[[list[dict[str, Any]]], None]
) -> None:
    """Change the layers of the attestation manifest."""
    ours = shelf.repository.manifest(content["manifests"][1]["digest"])
    assert ours
    changed = json.loads(ours.raw)
    change(changed["layers"])
    raw = json.dumps(changed).encode()
    stored = shelf.repository.put_manifest(digest_of(raw), raw, ours.descriptor.media_type)
    content["manifests"][1] |= stored.as_dict()


def with_one_statement(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    with_changed_statements(shelf, content, lambda layers: layers.__delitem__(slice(1, None)))


def about_nobody(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    """Leave a statement of ours without a subject, which is true of all of none."""

    def change(layers: list[dict[str, Any]]) -> None:
        said = json.loads(shelf.repository.blob(layers[0]["digest"]))
        blob = shelf.repository.put_blob(json.dumps({**said, "subject": []}).encode(), manifests.LAYER)
        layers[0] |= blob.as_dict()

    with_changed_statements(shelf, content, change)


def with_a_statement_that_is_none(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    blob = shelf.repository.put_blob(b"no statement", manifests.LAYER)
    with_changed_statements(shelf, content, lambda layers: layers[1].update(blob.as_dict()))


def without_attestations(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content["manifests"].pop()


def of_another_cell(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content["annotations"]["io.ftbuild.cell"] = "22.12-sm70"


def without_gates(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    del content["annotations"]["io.ftbuild.gates"]


def with_another_sm(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content["annotations"]["io.ftbuild.sm"] = "90"


def as_the_other_product(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content |= shelf.index(plan, "sdk")


def with_one_gate(shelf: Shelf, plan: Plan, content: dict[str, Any]) -> None:
    content["annotations"]["io.ftbuild.gates"] = "verify"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_another_image_first, "something else than one image and its attestations"),
        (with_another_platform, "expected an image for one platform"),
        (with_another_image_for_attestations, "something else than one image and its attestations"),
        (with_the_platform_hidden, "something else than one image and its attestations"),
        (with_attestations_about_another, "its attestations are about another image"),
        (with_known_holes_of_another, "its attestations are about another image"),
        (with_one_statement, "its attestations are about another image"),
        (about_nobody, "its attestations are about another image"),
        (with_a_statement_that_is_none, "its attestations are about another image"),
        (without_attestations, "something else than one image and its attestations"),
        (of_another_cell, "it is not the runtime image of 22.12-sm86-"),
        (without_gates, "it has not passed verify,smoke, but nothing"),
        (with_another_sm, "its annotation 'io.ftbuild.sm' is not the image's label"),
        (as_the_other_product, "it is not the runtime image of 22.12-sm86-"),
        (with_one_gate, "it has not passed verify,smoke, but verify"),
    ],
)
def test_an_index_that_was_replaced_gets_neither_signature_nor_tag(
    shelf: Shelf, cell: Plan, change: Change, message: str
) -> None:
    """The tested image is in all of them, or the records would refuse it."""
    shelf.tested(cell)
    half_published(shelf, cell)
    before, content = shelf.moving(cell), shelf.index(cell, "runtime")
    change(shelf, cell, content)
    shelf.replace_index(cell, "runtime", content)
    refused(shelf.publish(cell), message)
    assert shelf.moving(cell) == before


def test_statements_of_the_builder_after_ours_may_be_about_anything(shelf: Shelf, cell: Plan) -> None:
    """BuildKit's own are there as it wrote them. What the signature is about is SBOM, provenance, holes."""
    shelf.tested(cell)
    half_published(shelf, cell)
    content = shelf.index(cell, "runtime")
    text = manifests.statement("base", f"sha256:{'e' * 64}", "https://slsa.dev/provenance/v0.2", {})
    layer = {
        **shelf.repository.put_blob(text, manifests.LAYER).as_dict(),
        "annotations": {manifests.PREDICATE_TYPE: "https://slsa.dev/provenance/v0.2"},
    }
    with_changed_statements(shelf, content, lambda layers: layers.insert(2, layer))
    digest = shelf.replace_index(cell, "runtime", content)
    signer: Any = Recorder()
    for each in shelf.immutable(cell).values():
        signer.sign(f"{shelf.repository.name}@{each}", print)
    assert only(shelf.publish(cell, signer=signer)).state == "promoted"
    assert shelf.moving(cell)["runtime"] == digest


def test_a_tag_set_meanwhile_is_not_overwritten(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody sets the tag after the registry was asked, and before it is this cell's turn."""
    from ftbuild.publishing import publish

    shelf.tested(cell)
    published = only(shelf.publish(cell)).products
    other = shelf.elsewhere(shelf.work)
    fresh = replace(other, names=Names(f"{shelf.names.repository}2", f"{shelf.names.repository}2"))
    fresh.tested(cell)
    real = publish._tested

    def late(*args: Any) -> Any:
        found = real(*args)
        fresh.image(cell, "runtime", names.tag(cell, "runtime"))
        return found

    monkeypatch.setattr(publish, "_tested", late)
    refused(fresh.publish(cell), "has not passed verify,smoke, but nothing")
    assert published


# Signatures


def test_what_was_published_without_a_key_is_signed_by_the_next_run_with_one(
    shelf: Shelf, cell: Plan, signer: KeySigner
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell)).state == "published"
    assert signatures(shelf) == []
    assert only(shelf.publish(cell, signer=signer)).state == "signed"
    shelf.said.clear()
    assert only(shelf.publish(cell, signer=signer)).state == "present"
    assert not [line for line in shelf.said if "signing" in line]


def test_our_own_signature_proves_that_an_image_was_tested(
    shelf: Shelf, cell: Plan, signer: KeySigner, tmp_path: Path
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell, signer=signer)).state == "published"
    forget_moving(shelf, cell)
    stranger = shelf.elsewhere(tmp_path / "empty")
    assert only(stranger.publish(cell, signer=signer)).state == "promoted"
    assert shelf.moving(cell) == shelf.immutable(cell)


def test_the_signature_of_another_key_proves_nothing(
    shelf: Shelf, cell: Plan, signer: KeySigner, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell, signer=KeySigner(str(keys[1]), public_log=False))).state == "published"
    before = forget_moving(shelf, cell)
    refused(shelf.elsewhere(tmp_path / "empty").publish(cell, signer=signer), "there is no record of verify")
    assert shelf.moving(cell) == before


def test_a_signed_image_under_the_tag_of_another_cell_is_refused(
    shelf: Shelf, config: Config, cell: Plan, signer: KeySigner, tmp_path: Path
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell, signer=signer)).state == "published"
    other = plan_of(config, "80")
    for product in PRODUCTS:
        found = shelf.repository.manifest(names.tag(cell, product))
        assert found
        shelf.repository.put_manifest(names.tag(other, product), found.raw, INDEX)
    stranger = shelf.elsewhere(tmp_path / "empty")
    refused(stranger.publish(other, signer=signer), f"it is not the runtime image of 22.12-sm80-{other.key}")
    assert shelf.moving(other) == {}


def test_of_a_pair_only_what_carries_our_signature_needs_no_records(
    shelf: Shelf, cell: Plan, signer: KeySigner, tmp_path: Path
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell)).state == "published"
    digest = shelf.immutable(cell)["runtime"]
    signer.sign(f"{shelf.repository.name}@{digest}", shelf.said.append)
    stranger = shelf.elsewhere(tmp_path / "empty")
    found = stranger.publish(cell, signer=signer)
    refused(found, "there is no record of verify")
    where = str(only(found).error)
    assert shelf.immutable(cell)["sdk"] in where
    assert digest not in where


def test_a_published_cell_names_its_tags_and_digests(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    found, name = only(shelf.publish(cell)).products, shelf.repository.name
    for product, digest in shelf.immutable(cell).items():
        moving = names.tag(cell, product, moving=True)
        assert found[product] == Published(f"{name}:{names.tag(cell, product)}", f"{name}:{moving}", digest)
        assert moving in {"22.12-sm86", "22.12-sm86-sdk"}
    record = json.loads((cell.folder(shelf.work) / "published.json").read_text())
    assert {product: Published(**said) for product, said in record.items()} == found


def test_a_silent_cosign_is_named_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "cosign"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(PublishError, match="cosign cannot read the key: cosign ended with code 3"):
        KeySigner("some.key", public_log=False).public_key  # noqa: B018


def test_a_key_that_cannot_be_read_is_an_error(
    shelf: Shelf, cell: Plan, signer: KeySigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.tested(cell)
    assert only(shelf.publish(cell)).state == "published"
    monkeypatch.setenv("COSIGN_PASSWORD", "wrong")
    refused(shelf.publish(cell, signer=replace(signer)), "cosign cannot read the key")


def test_a_key_that_cannot_be_read_is_told_before_anything_is_built_or_pushed(
    signer: KeySigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signing.signer(signer.key, signer.public_log) == signer
    monkeypatch.setenv("COSIGN_PASSWORD", "wrong")
    with pytest.raises(PublishError, match="cosign cannot read the key") as unreadable:
        signing.signer(signer.key, public_log=False)
    assert unreadable.value.where == signer.key


# Images that no GPU has tested


class Unsmoked(Engine):
    """An engine that has a verified pair and its labelled copies, and tells what it pushed by its tag."""

    pushes: dict[str, str]

    def push(self, name: str, **more: Any) -> list[dict[str, Any]]:
        return [told(self.pushes[more["tag"]])]


@pytest.fixture
def unsmoked(shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch) -> Unsmoked:
    engine = Unsmoked()
    ids, engine.pushes = shelf.stage(cell), {}
    shelf.judge(cell, ids, [VERIFY])
    for product in PRODUCTS:
        tag = f"{shelf.names.staged(cell, product)}{names.UNSMOKED}"
        copy = shelf.image(cell, product, tag, **{untested.LABEL: "true"})
        engine.pushes[tag] = copy.manifest.digest
        for name, image in (
            (cell.tag(product), ids[product]),
            (f"{cell.tag(product)}{names.UNSMOKED}", copy.id),
            (ids[product], ids[product]),
            (copy.id, copy.id),
        ):
            engine.add(name, image)
    monkeypatch.setattr(untested, "derive", lambda client, plan, product, name: client.images.get(name).id)
    monkeypatch.setattr(container, "run", lambda *_, **__: "os\tid\tdebian\nhas\tdpkg\nhas\tpython3\n")
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    return engine


def test_untested_images_are_compared_and_signed_like_tested_ones(
    shelf: Shelf, cell: Plan, signer: KeySigner, unsmoked: Unsmoked
) -> None:
    def publish(signer: KeySigner | None = None) -> str:
        found = only(shelf.publish(cell, signer=signer, allow_unsmoked=True))
        assert found.error is None, found.error
        assert {p.reference.rpartition(names.UNSMOKED)[1] for p in found.products.values()} == {
            names.UNSMOKED
        }
        return found.state

    assert publish() == "unsmoked"
    assert any(line.endswith("with the label unsmoked, without moving tags") for line in shelf.said)
    assert publish() == "present"
    assert signatures(shelf) == []
    assert publish(signer) == "signed"
    signed = signatures(shelf)
    assert signed
    assert publish(signer) == publish() == "present"
    assert signatures(shelf) == signed


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    ("label", "value", "why"),
    [
        (committed.REVISION, "0123abc-dirty", "built from files that are not committed"),
        (definitions.CACHE_LABEL, "remote", "compiled with a remote compiler cache"),
    ],
)
def test_what_its_labels_keep_from_publication_is_not_even_pushed(
    shelf: Shelf, cell: Plan, unsmoked: Unsmoked, product: str, label: str, value: str, why: str
) -> None:
    """Pushing and compressing took minutes, after which the same was said."""
    unsmoked.images[unsmoked.images[cell.tag(product)].id].labels = {label: value}
    refused(shelf.publish(cell, allow_unsmoked=True), why)
    assert unsmoked.asked == []
    (planned,) = shelf.foresee(cell, allow_unsmoked=True)
    assert why in str(planned.error)


@pytest.mark.parametrize("changed", ["statements", "image"])
def test_an_untested_image_of_somebody_else_gets_no_signature(
    shelf: Shelf, cell: Plan, signer: KeySigner, unsmoked: Unsmoked, changed: str
) -> None:
    assert only(shelf.publish(cell, allow_unsmoked=True)).state == "unsmoked"
    tag = names.tag(cell, "sdk") + names.UNSMOKED
    if changed == "statements":
        found = shelf.repository.manifest(tag)
        assert found
        content = json.loads(found.raw)
        attached = shelf.repository.manifest(content["manifests"][1]["digest"])
        assert attached
        layers = json.loads(attached.raw)
        layers["layers"][2:] = layers["layers"][:1]
        raw = json.dumps(layers).encode()
        again = shelf.repository.put_manifest(digest_of(raw), raw, attached.descriptor.media_type)
        content["manifests"][1] |= again.as_dict()
    else:
        other = shelf.image(cell, "sdk", "other", **{untested.LABEL: "true"}).manifest
        image = remote_image.read(shelf.repository, "other")
        assert image
        digest, labels = other.digest, shelf.repository.config(image.image).labels
        texts = [
            manifests.statement("x", digest, kind, {}) for kind in (sbom.PREDICATE, provenance.PREDICATE)
        ]
        said = of_index(cell, "sdk", **labels, **{GATES: "verify"})
        upload(shelf.repository, other, {"architecture": "amd64", "os": "linux"}, texts, said, [tag])
        content = None
    if content:
        shelf.repository.put_manifest(tag, json.dumps(content).encode(), INDEX)
    refused(
        shelf.publish(cell, signer=signer, allow_unsmoked=True),
        "not those that ftbuild makes" if content else "another image under the immutable tag",
    )
    assert signatures(shelf) == []


# Older builds


def test_a_moving_tag_goes_back_only_when_it_is_forced_to(shelf: Shelf, cell: Plan) -> None:
    newer = replace(cell, key="f" * 12, revision=Revision("b" * 40, "2026-03-01T00:00:00+01:00"))
    for plan in (newer, cell):
        shelf.tested(plan)
    assert only(shelf.publish(newer)).state == "published"
    there = shelf.moving(cell)
    found = shelf.publish(cell)
    refused(found, "would go back from a build of 2026-03-01T00:00:00+01:00 to one of 2026-01-01")
    assert "--force" in str(only(found).error)
    assert shelf.moving(cell) == there
    assert len(shelf.immutable(cell)) == 2
    assert only(shelf.publish(cell, force=True)).state == "promoted"
    assert shelf.moving(cell) == shelf.immutable(cell)
    assert only(shelf.publish(newer)).state == "promoted"
    assert shelf.moving(newer) == shelf.immutable(newer) == there


def test_no_moving_tag_of_a_pair_moves_if_one_would_go_back(shelf: Shelf, cell: Plan) -> None:
    newer = replace(cell, key="f" * 12, revision=Revision("b" * 40, "2026-03-01T00:00:00+00:00"))
    shelf.tested(newer)
    assert only(shelf.publish(newer)).state == "published"
    other = shelf.image(cell, "runtime", names.tag(cell, "runtime", moving=True)).manifest.digest
    shelf.tested(cell)
    refused(shelf.publish(cell), "22.12-sm86-sdk would go back")
    assert shelf.moving(cell)["runtime"] == other


def test_of_two_builds_of_one_commit_the_later_published_one_counts(shelf: Shelf, cell: Plan) -> None:
    other = replace(cell, key="f" * 12)
    for plan in (cell, other, cell):
        shelf.tested(plan) if not shelf.immutable(plan) else None
        assert only(shelf.publish(plan)).exit_code == 0
        assert shelf.moving(cell) == shelf.immutable(plan)


def index_of(shelf: Shelf, plan: Plan, tag: str, created: str | None) -> str:
    """Put an index whose build has this time under a tag; return its digest."""
    image = shelf.image(plan, "runtime", "some").manifest
    part = {**image.as_dict(), "platform": {"architecture": "amd64", "os": "linux"}}
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [part]}
    content["annotations"] = {"org.opencontainers.image.created": created} if created else {}
    return shelf.repository.put_manifest(tag, json.dumps(content).encode(), INDEX).digest


@pytest.mark.parametrize(
    ("before", "after", "goes_back"),
    [
        ("2026-01-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00", True),
        ("2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00+00:00", False),
        ("2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00", False),
        ("2026-01-02T00:00:00+00:00", None, True),
        ("2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00", True),  # without an offset it is no time
        ("2026-01-02T00:00:00", "2026-01-01T00:00:00+00:00", False),
        (None, None, False),
    ],
)
def test_a_tag_goes_back_when_its_time_is_later_or_the_new_one_has_none(
    shelf: Shelf, cell: Plan, before: str | None, after: str | None, goes_back: bool
) -> None:
    index_of(shelf, cell, "moving", before)
    digest = index_of(shelf, cell, "new", after)
    if not goes_back:
        tagging.require_newer(shelf.repository, digest, "moving")
        return
    with pytest.raises(PublishError, match="would go back"):
        tagging.require_newer(shelf.repository, digest, "moving")


# Secrets, locks, full disks


@pytest.mark.parametrize("gate", [VERIFY, SMOKE], ids=lambda gate: gate.name)
def test_nothing_is_uploaded_if_the_record_of_a_gate_holds_a_password(
    shelf: Shelf, cell: Plan, gate: Gate
) -> None:
    """It is attached to the index as it is."""
    shelf.tested(cell)
    record = cell.folder(shelf.work) / gate.record
    record.write_text(record.read_text().replace("42 of 42", "https://user:hunter2@host.invalid/x"))
    before = shelf.repository.tags()
    refused(shelf.publish(cell), "hold a password, so nothing is uploaded")
    assert shelf.repository.tags() == before


@pytest.mark.parametrize(
    "text",
    [
        "http://ada:hunter2!@proxy.invalid:3128",
        "http://:hunter2!@proxy.invalid:3128",
        "https://ghp_abcdefghijklmnop0123@github.invalid/x",
        "--build-arg=TOKEN=a known secret",
    ],
)
def test_nothing_is_uploaded_if_a_statement_holds_a_password(
    shelf: Shelf, cell: Plan, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "a known secret")
    shelf.tested(cell)
    written = {"22_12-sm86-runtime": {"buildx.build.provenance": {"invocation": {"args": {"x": [text]}}}}}
    file = cell.folder(shelf.work) / "metadata.json"
    file.write_text(json.dumps(written))
    before = shelf.repository.tags()
    found = shelf.publish(cell)
    refused(found, "hold a password, so nothing is uploaded")
    assert text not in str(only(found).error)
    assert shelf.repository.tags() == before
    harmless = [
        "http://proxy.invalid:3128",
        "https://xxxxx:xxxxx@github.invalid/x",
        "ssh://git@github.invalid",
    ]
    harmless += ["docker-image://debian:bookworm-slim@sha256:0123", "https://a.invalid/b@c:d@e"]
    file.write_text(json.dumps(written).replace(json.dumps([text]), json.dumps(harmless)))
    assert only(shelf.publish(cell)).state == "published"


def test_a_cell_that_the_file_system_refuses_does_not_stop_the_others(
    shelf: Shelf, config: Config, cell: Plan
) -> None:
    broken = plan_of(config, "80")
    for plan in (broken, cell):
        shelf.tested(plan)
    folder = broken.folder(shelf.work)
    shutil.rmtree(folder.parent)
    folder.parent.write_text("a file where a folder should be")
    first, second = shelf.publish(broken, cell)
    assert (first.state, first.exit_code, second.state) == ("failed", 4, "published")
    assert isinstance(first.error, HostError)
    assert str(folder) in str(first.error)


def test_two_commands_do_not_work_on_one_cell(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.tested(cell)
    monkeypatch.setattr(locks, "SECONDS", 0.1)
    with FileLock(cell.folder(shelf.work) / "lock"):
        found = only(shelf.publish(cell))
    assert (found.state, found.exit_code) == ("failed", 4)
    assert "another command is working on this cell" in str(found.error)
    assert "waiting" in "".join(shelf.said)
    assert only(shelf.publish(cell)).state == "published"


def test_an_engine_that_does_not_answer_is_not_taken_for_one_without_the_images(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    found = only(shelf.publish(cell))
    assert isinstance(found.error, PublishError)
    assert found.error.what.startswith("the Docker Engine does not answer")


def test_where_neither_registry_nor_engine_has_the_images_the_registry_s_fault_is_told(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "connect", lambda: Unsmoked().client)
    found = only(shelf.publish(cell))
    assert isinstance(found.error, PublishError)
    assert shelf.names.staged(cell, "runtime") in str(found.error)

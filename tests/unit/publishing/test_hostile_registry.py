"""What somebody who may push, and has no key, puts into a registry, and every command that reads it there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import ftbuild.publishing
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import (
    from_builder,
    garbage,
    index,
    layers,
    names,
    pushed,
    remote_image,
    staging,
)
from ftbuild.publishing.attest import manifests, provenance, sbom, vex
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.registry import client
from ftbuild.registry.answers import MAX_SIZE, Part
from ftbuild.registry.malformed import Malformed
from tests.unit.publishing.shelf import CONFIG, INDEX, LAYER, MANIFEST, Image, Shelf
from tests.unit.publishing.test_engine_side import Engine, told
from tests.unit.publishing.test_publish import plan_of

OF, TYPE = "vnd.docker.reference.digest", "vnd.docker.reference.type"
HERE = {"architecture": "amd64", "os": "linux"}
Parts = list[dict[str, Any]]


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config, base="open")


# An index with more than an image and its attestations


def entry(image: Image, **more: Any) -> dict[str, Any]:
    return {**image.manifest.as_dict(), **more}


def about(ours: Image) -> dict[str, Any]:
    return {
        "platform": manifests.NO_PLATFORM,
        "annotations": {TYPE: "attestation-manifest", OF: ours.manifest.digest},
    }


FORMS: Mapping[str, Callable[[Image, Image], Parts]] = {
    "another image that says it is an attestation": lambda ours, evil: [
        entry(evil, platform=HERE, annotations={OF: ours.manifest.digest}),
        entry(ours, platform=HERE),
    ],
    "the same, with the right type": lambda ours, evil: [
        entry(evil, platform=HERE, annotations=about(ours)["annotations"]),
        entry(ours, platform=HERE),
    ],
    "after ours": lambda ours, evil: [
        entry(ours, platform=HERE),
        entry(evil, platform=HERE, annotations=about(ours)["annotations"]),
    ],
    "without a platform": lambda ours, evil: [
        entry(evil, annotations=about(ours)["annotations"]),
        entry(ours, platform=HERE),
    ],
    "for a newer processor": lambda ours, evil: [
        entry(ours, platform=HERE),
        entry(evil, platform={**HERE, "variant": "v4"}, annotations=about(ours)["annotations"]),
    ],
    "ours hidden from engines": lambda ours, evil: [
        entry(ours, platform=manifests.NO_PLATFORM),
        entry(evil, platform=HERE, annotations={OF: ours.manifest.digest}),
    ],
    "ours without a platform": lambda ours, evil: [entry(ours), entry(evil, **about(ours))],
    "two images": lambda ours, evil: [entry(evil, platform=HERE), entry(ours, platform=HERE)],
    "two attestations": lambda ours, evil: [
        entry(ours, platform=HERE),
        entry(evil, **about(ours)),
        entry(evil, **about(ours)),
    ],
    "an attestation of another": lambda ours, evil: [
        entry(ours, platform=HERE),
        entry(evil, **about(evil)),
    ],
    "an attestation that is the image": lambda ours, evil: [
        entry(ours, platform=HERE),
        entry(ours, **about(ours)),
    ],
    "attestations alone": lambda ours, evil: [entry(ours, **about(ours)), entry(evil, **about(ours))],
    "nothing": lambda ours, evil: [],
}


@dataclass(frozen=True)
class Hostile:
    """A registry where every tag that a cell has is an index of such a form, and the cell's session."""

    shelf: Shelf
    plan: Plan
    ours: Image
    session: PublishSession
    engine: Engine

    @property
    def options(self) -> Options:
        return self.session.options


@pytest.fixture(params=FORMS, ids=str)
def hostile(
    request: pytest.FixtureRequest, shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> Hostile:
    ours, evil = shelf.image(cell, "runtime", "ours"), shelf.image(cell, "runtime", "evil")
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": FORMS[request.param](ours, evil)}
    content["annotations"] = of_index(cell, "runtime")
    tags = [
        *(shelf.names.staged(cell, product) for product in PRODUCTS),
        *(names.tag(cell, product, moving=True) for product in PRODUCTS),
        *(shelf.names.staged_base(name) for name in (cell.base.serving, cell.base.devel)),
    ]
    for tag in tags:
        shelf.repository.put_manifest(tag, json.dumps(content).encode(), INDEX)
    engine = Engine(stream=[told(ours.manifest.digest)])
    for name in (cell.base.serving, cell.base.devel, ours.id, *(cell.tag(p) for p in PRODUCTS)):
        engine.add(name, ours.id)
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    shelf.judge(cell, dict.fromkeys(PRODUCTS, ours.id))
    return Hostile(shelf, cell, ours, PublishSession(Options(shelf.names, shelf.work)), engine)


def read_the_index(at: Hostile) -> None:
    assert index.read(at.shelf.repository, at.shelf.said.append) == ()
    raise PublishError(at.shelf.said[-1])


READERS: Mapping[str, Callable[[Hostile], object]] = {
    "which": read_the_index,
    "a base for builders": lambda at: from_builder.push_base(
        at.session, at.plan, report=at.shelf.said.append
    ),
    "registry.stage": lambda at: staging.stage([at.plan], at.options, report=at.shelf.said.append),
    "registry.pull": lambda at: staging.pull([at.plan], at.options, report=at.shelf.said.append),
    "promotion": lambda at: at.session.staged(at.plan),
    "a push": lambda at: at.session.push(
        "runtime", at.ours.id, at.shelf.names.staged(at.plan, "runtime"), at.shelf.said.append
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_takes_an_index_with_anything_beside_an_image_and_its_attestations(
    hostile: Hostile, reader: str
) -> None:
    with pytest.raises(PublishError, match=r"something else than one image|an image for one platform, found"):
        READERS[reader](hostile)
    assert not [asked for asked in hostile.engine.asked if asked[0] in ("pull", "push")]


def test_a_builder_gets_the_image_and_not_the_index_around_it(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine with containerd's store pushes an index with attestations, whose digest is the image's id."""
    ours, said = shelf.image(cell, "runtime", "ours"), shelf.image(cell, "runtime", "said")
    content = {"schemaVersion": 2, "mediaType": INDEX}
    content["manifests"] = [entry(ours, platform=HERE), entry(said, **about(ours))]
    digest = shelf.repository.put_manifest("pushed", json.dumps(content).encode(), INDEX).digest
    engine = Engine(stream=[told(digest)])
    for name in (cell.base.serving, cell.base.devel, digest):
        engine.add(name, digest)
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    session = PublishSession(Options(shelf.names, shelf.work))
    given = from_builder.push_base(session, cell, report=shelf.said.append)
    assert given == (f"{shelf.repository.name}@{ours.manifest.digest}",) * 2
    engine.stream = [told(said.manifest.digest)]
    with pytest.raises(PublishError, match="another image than the one that was pushed"):
        from_builder.push_base(session, cell, report=shelf.said.append)


def test_such_a_tag_is_garbage_like_any_other(hostile: Hostile) -> None:
    old = replace(hostile.plan, key="0" * 12)
    tag = hostile.shelf.names.staged(hostile.plan, "sdk")
    kept = {each.name for each in garbage.staged(hostile.shelf.names, [hostile.plan], 0)}
    gone = {each.name for each in garbage.staged(hostile.shelf.names, [old], 0)}
    assert f"{hostile.shelf.repository.name}:{tag}" in gone - kept


def test_every_image_of_a_registry_comes_through_the_one_reader() -> None:
    """Only it, the index of moving tags, which shows no image, and a tag that is copied ask for manifests.

    What is no image is asked for by its digest: objects, model repositories, statements.
    """
    folder = Path(ftbuild.publishing.__path__[0])
    asking = {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if re.search(r"(?<!referrer)\.manifest\(|(?<!attest)\.manifests\b", file.read_text())
    }
    artifacts = {"model_artifact.py", "objects.py", "signed_statements.py"}
    assert asking - artifacts == {"index.py", "remote_image.py", "tagging.py"}
    for name in artifacts:
        assert not re.search(r"\.manifest\((?!\w*\.?digest\))", (folder / name).read_text()), name


def test_a_manifest_that_is_an_image_and_an_index_at_once_is_refused(shelf: Shelf, cell: Plan) -> None:
    ours = shelf.image(cell, "runtime", "ours")
    found = shelf.repository.manifest("ours")
    assert found
    both = {**json.loads(found.raw), "manifests": [entry(ours, platform=HERE)]}
    odd = replace(found, raw=json.dumps(both).encode())
    with pytest.raises(Malformed, match="JSON of the expected form") as refused:
        _ = odd.content
    assert "an image and an index at once" in str(refused.value)


@pytest.mark.parametrize("wrong", [{"size": 7}, {"mediaType": INDEX}])
def test_an_index_that_states_another_size_or_type_is_refused(
    shelf: Shelf, cell: Plan, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's registry takes it."""
    ours = shelf.image(cell, "runtime", "ours")
    content = {"schemaVersion": 2, "mediaType": INDEX}
    content["manifests"] = [{**entry(ours, platform=HERE), **wrong}]
    shelf.repository.put_manifest("odd", json.dumps(content).encode(), INDEX)
    with pytest.raises(Malformed, match="another size or type of its image"):
        remote_image.read(shelf.repository, "odd")


@pytest.mark.parametrize("gone", [True, False])
def test_an_index_around_what_is_no_image_is_refused(shelf: Shelf, cell: Plan, gone: bool) -> None:
    """Another index has no layers and no labels of its own."""
    ours = shelf.image(cell, "runtime", "ours")
    whole: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [entry(ours, platform=HERE)],
    }
    inner = shelf.repository.put_manifest("inner", json.dumps(whole).encode(), INDEX)
    whole["manifests"] = [{**inner.as_dict(), "platform": HERE}]
    digest = shelf.repository.put_manifest("outer", json.dumps(whole).encode(), INDEX).digest
    if gone:
        shelf.repository.delete(inner.digest)
    for reference, place in (("outer", ":outer"), (digest, f"@{digest}")):
        with pytest.raises(Malformed, match="an index refers to an image that is none") as refused:
            remote_image.read(shelf.repository, reference)
        assert refused.value.where == f"{shelf.repository.name}{place}"


def test_a_configuration_of_another_size_than_stated_is_refused(shelf: Shelf, cell: Plan) -> None:
    shelf.image(cell, "runtime", "ours")
    found = remote_image.read(shelf.repository, "ours")
    assert found
    config = found.image.content.config
    assert config
    assert shelf.repository.part(config)
    with pytest.raises(Malformed, match="the size in the manifest"):
        shelf.repository.part(config.model_copy(update={"size": config.size + 1}))


# Our configuration with other layers


def layer_of(text: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("who")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    return file.getvalue()


def stored(
    shelf: Shelf, data: bytes, kind: str, unpacked: bytes, *tags: str, more: Parts | None = None
) -> str:
    """Store an image with one layer, which unpacks to what the configuration says; return its id."""
    layer = shelf.repository.put_blob(data, kind)
    diff_ids = ["sha256:" + hashlib.sha256(unpacked).hexdigest()]
    config = {**HERE, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    own = shelf.repository.put_blob(json.dumps(config).encode(), CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": own.as_dict()}
    content["layers"] = [layer.as_dict(), *(more or [])]
    for tag in tags:
        shelf.repository.put_manifest(tag, json.dumps(content).encode(), MANIFEST)
    return own.digest


def read(shelf: Shelf, tag: str) -> RemoteImage:
    found = remote_image.read(shelf.repository, tag)
    assert found
    return found


GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKERS = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@pytest.mark.parametrize("kind", [GZIP, DOCKERS])
@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_layers_that_unpack_to_what_the_configuration_names_are_accepted(
    shelf: Shelf, kind: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in pieces, and of several members, as some tools write them."""
    monkeypatch.setattr(client, "PIECE_BYTES", piece)
    monkeypatch.setattr(layers, "_PIECE_BYTES", 1000)
    raw = layer_of(b"good" * 5000)
    stored(shelf, gzip.compress(raw), kind, raw, "one")
    layers.require(shelf.repository, read(shelf, "one"))
    stored(shelf, gzip.compress(raw[:7000]) + gzip.compress(raw[7000:]), kind, raw, "two")
    layers.require(shelf.repository, read(shelf, "two"))
    stored(shelf, raw, LAYER, raw, "plain")
    layers.require(shelf.repository, read(shelf, "plain"))


def test_other_layers_are_refused_whatever_their_form(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    good, evil = layer_of(b"good"), layer_of(b"evil")
    stored(shelf, gzip.compress(evil), GZIP, good, "evil")
    stored(shelf, gzip.compress(good)[:-20], GZIP, good, "short")
    stored(shelf, b"\0" * 40, GZIP, good, "none")
    stored(shelf, gzip.compress(good), GZIP.replace("gzip", "zstd"), good, "zstd")
    stored(shelf, gzip.compress(good), GZIP.replace("gzip", "lz4"), good, "lz4")
    extra = shelf.repository.put_blob(evil, LAYER).as_dict()
    stored(shelf, gzip.compress(good), GZIP, good, "more", more=[extra])
    for tag, message in (
        ("evil", "not the one that its configuration names"),
        ("short", "cannot be unpacked"),
        ("none", "cannot be unpacked"),
        ("zstd", "cannot be unpacked"),
        ("lz4", "cannot be compared"),
        ("more", "has 2 layers, and its configuration names 1"),
    ):
        with pytest.raises(Malformed, match=message):
            layers.require(shelf.repository, read(shelf, tag))
    monkeypatch.setattr(layers, "MAX_BYTES", 10_000)
    stored(shelf, gzip.compress(b"\0" * 10_001), GZIP, b"\0" * 10_001, "bomb")
    with pytest.raises(Malformed, match="unpacks to more than 10000 bytes"):
        layers.require(shelf.repository, read(shelf, "bomb"))


def test_a_layer_of_another_size_or_content_ends_with_an_error(shelf: Shelf) -> None:
    content = b"x" * 1000
    blob = shelf.repository.put_blob(content, LAYER)
    part = Part(mediaType=LAYER, digest=blob.digest, size=1000)
    assert b"".join(shelf.repository.pieces(part)) == content
    for size in (999, 1001, MAX_SIZE):
        with pytest.raises(PublishError):
            list(shelf.repository.pieces(part.model_copy(update={"size": size})))


def test_a_staged_manifest_with_our_configuration_and_other_layers_is_not_published(
    shelf: Shelf, cell: Plan, tmp_path: Path
) -> None:
    """An engine with its own image store would take its id for that of the tested image."""
    ids = shelf.tested(cell)
    tag = shelf.names.staged(cell, "runtime")
    found = shelf.repository.manifest(tag)
    assert found
    forged = json.loads(found.raw)
    forged["layers"] = [shelf.repository.put_blob(layer_of(b"evil"), LAYER).as_dict()]
    shelf.repository.put_manifest(tag, json.dumps(forged).encode(), MANIFEST)
    assert ids["runtime"] in read(shelf, tag).ids
    (outcome,) = shelf.publish(cell)
    assert (outcome.state, outcome.exit_code) == ("failed", 10)
    assert "not the one that its configuration names" in str(outcome.error)
    assert shelf.immutable(cell) == shelf.moving(cell) == {}
    # Whoever has the list of what was pushed finds the image by its digest, and reads no layer.
    pushed.note(cell.folder(shelf.work), shelf.repository.name, tag, found.descriptor.digest)
    (outcome,) = shelf.publish(cell)
    assert outcome.state == "published"
    manifest = shelf.index(cell, "runtime")["manifests"][0]
    assert manifest["digest"] == found.descriptor.digest


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a:b": 7}', '{"a:b": "latest"}', "[" * 100_000, "{" + '"a":7,' * 100_000 + "}"]
)
def test_a_damaged_list_of_what_was_pushed_is_an_error(shelf: Shelf, cell: Plan, content: str) -> None:
    shelf.tested(cell)
    file = cell.folder(shelf.work) / pushed.FILE.name
    file.write_text(content)
    (outcome,) = shelf.publish(cell)
    assert (outcome.state, outcome.exit_code) == ("failed", 10)
    assert "list of what was pushed from here is damaged" in str(outcome.error)
    assert str(file) in str(outcome.error)


# Statements


def forge(shelf: Shelf, plan: Plan, product: str, *tags: str) -> None:
    """Attach statements of our kinds to the staged image of a product, as `attest` would."""
    image = read(shelf, shelf.names.staged(plan, product)).image
    digest = image.descriptor.digest
    said: dict[str, Mapping[str, Any]] = {
        sbom.PREDICATE: {"spdxVersion": "SPDX-2.3", "packages": []},
        provenance.PREDICATE: {"buildDefinition": {"buildType": "x"}},
        vex.PREDICATE: {"statements": []},
    }
    texts = [manifests.statement("x", digest, kind, content) for kind, content in said.items()]
    config = shelf.repository.config(image)
    stated = of_index(plan, product, **config.labels, **{"io.ftbuild.gates": "verify,smoke"})
    upload(shelf.repository, image.descriptor, config.platform, texts, stated, tags)


@pytest.mark.parametrize("products", [PRODUCTS, ("runtime",), ("sdk",)])
def test_forged_statements_about_a_tested_image_get_neither_signature_nor_tag(
    shelf: Shelf, cell: Plan, products: tuple[str, ...]
) -> None:
    shelf.tested(cell)
    for product in products:
        forge(shelf, cell, product, names.tag(cell, product))
    (outcome,) = shelf.publish(cell)
    assert (outcome.state, outcome.exit_code) == ("failed", 10)
    assert "are not those that ftbuild makes of it" in str(outcome.error)
    assert shelf.moving(cell) == {}
    assert shelf.immutable(cell).keys() == set(products)


def test_what_an_interrupted_run_left_counts_if_it_is_what_would_be_made_now(
    shelf: Shelf, cell: Plan, tmp_path: Path
) -> None:
    """On a machine that has records and inventories, and no list of what was pushed."""
    shelf.tested(cell)
    (outcome,) = shelf.publish(cell)
    before = shelf.immutable(cell)
    (cell.folder(shelf.work) / pushed.FILE.name).unlink()
    for product in PRODUCTS:
        shelf.image(cell, product, names.tag(cell, product, moving=True))
    (outcome,) = shelf.publish(cell)
    assert outcome.state == "promoted"
    assert shelf.moving(cell) == shelf.immutable(cell) == before


def test_a_changed_statement_among_ours_is_noticed(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    (cell.folder(shelf.work) / pushed.FILE.name).unlink()
    content = shelf.index(cell, "sdk")
    attached = shelf.repository.manifest(content["manifests"][1]["digest"])
    assert attached
    changed = json.loads(attached.raw)
    said = json.loads(shelf.repository.blob(changed["layers"][0]["digest"]))
    said["predicate"]["comment"] = "nothing is inside"
    blob = shelf.repository.put_blob(json.dumps(said).encode(), manifests.LAYER)
    changed["layers"][0] |= blob.as_dict()
    raw = json.dumps(changed).encode()
    again = shelf.repository.put_manifest(client.digest_of(raw), raw, MANIFEST)
    content["manifests"][1] |= again.as_dict()
    shelf.replace_index(cell, "sdk", content)
    for product in PRODUCTS:
        shelf.image(cell, product, names.tag(cell, product, moving=True))
    (outcome,) = shelf.publish(cell)
    assert "are not those that ftbuild makes of it" in str(outcome.error)


def statements_of(shelf: Shelf, plan: Plan) -> list[dict[str, Any]]:
    found = read(shelf, names.tag(plan, "runtime"))
    return [json.loads(text) for text in remote_image.statements(shelf.repository, found)]


def wrapped(shelf: Shelf, plan: Plan) -> str:
    """Put what a builder may state, and what it never would, around the staged runtime image."""
    tag = shelf.names.staged(plan, "runtime")
    image = read(shelf, tag).image
    digest = image.descriptor.digest
    texts = [
        manifests.statement("x", digest, "https://slsa.dev/provenance/v0.2", {"made": "by a builder"}),
        manifests.statement("x", digest, "https://slsa.dev/provenance/v1", {"made": "by a builder"}),
        manifests.statement("x", digest, vex.PREDICATE, {"made": "by a stranger"}),
        manifests.statement("x", digest, sbom.PREDICATE, {"made": "by a stranger"}),
        manifests.statement("x", "sha256:" + "e" * 64, "https://slsa.dev/provenance/v0.2", {"of": "another"}),
        b"[]",
        b"[" * 100_000,
    ]
    attached = manifests.attestation([*texts[:5]])
    odd = [
        {**manifests.Blob(manifests.LAYER, text).descriptor.as_dict(), "annotations": {}}
        for text in texts[5:]
    ]
    for text in texts:
        shelf.repository.put_blob(text, manifests.LAYER)
    shelf.repository.put_blob(attached.blobs[0].data, CONFIG)
    content = json.loads(attached.manifest.data)
    content["layers"] += odd
    raw = json.dumps(content).encode()
    stored = shelf.repository.put_manifest(client.digest_of(raw), raw, MANIFEST)
    made = manifests.index(image.descriptor, HERE, stored, {})
    return shelf.repository.put_manifest(tag, made.data, INDEX).digest


def test_statements_under_a_staged_tag_of_somebody_else_are_left_out(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    wrapped(shelf, cell)
    (outcome,) = shelf.publish(cell)
    assert outcome.state == "published"
    kinds = [said["predicateType"] for said in statements_of(shelf, cell)]
    assert kinds == [sbom.PREDICATE, provenance.PREDICATE, vex.PREDICATE]
    assert "by a " not in json.dumps(statements_of(shelf, cell))


@pytest.mark.parametrize("known", ["pushed", "tested"])
def test_of_what_our_builder_pushed_only_provenance_of_the_image_is_kept(
    shelf: Shelf, cell: Plan, known: str
) -> None:
    """Its index is known by the list of what was pushed, or as the id of the tested image."""
    ids = shelf.tested(cell)
    digest = wrapped(shelf, cell)
    if known == "pushed":
        tag = shelf.names.staged(cell, "runtime")
        pushed.note(cell.folder(shelf.work), shelf.repository.name, tag, digest)
    else:
        shelf.judge(cell, {**ids, "runtime": digest})
    (outcome,) = shelf.publish(cell)
    assert outcome.state == "published"
    assert [said["predicate"] for said in statements_of(shelf, cell)[3:]] == [{"made": "by a builder"}] * 2


def test_an_image_with_statements_without_number_is_refused(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    found = read(shelf, shelf.names.staged(cell, "runtime"))
    texts = [manifests.statement("x", found.image.descriptor.digest, str(n), {}) for n in range(21)]
    upload(shelf.repository, found.image.descriptor, HERE, texts[:-1], {}, ["some"])
    assert list(remote_image.statements(shelf.repository, read(shelf, "some"))) == texts[:-1]
    upload(shelf.repository, found.image.descriptor, HERE, texts, {}, ["many"])
    with pytest.raises(Malformed, match="more than 20 statements"):
        list(remote_image.statements(shelf.repository, read(shelf, "many")))


# Images that no GPU has tested


def test_anything_under_both_unsmoked_tags_is_not_taken_for_ours(shelf: Shelf, cell: Plan) -> None:
    ids = shelf.stage(cell)
    shelf.judge(cell, ids, [VERIFY])
    for product in PRODUCTS:
        shelf.image(cell, product, names.tag(cell, product) + names.UNSMOKED)
    (outcome,) = shelf.publish(cell, allow_unsmoked=True)
    assert (outcome.state, outcome.exit_code) == ("failed", 10)
    assert "it has not passed verify, but nothing" in str(outcome.error)


# Times


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59+00:00", "2999-01-01T00:00:00-12:00", "never"])
def test_a_time_that_is_still_to_come_keeps_no_tag_from_moving(shelf: Shelf, cell: Plan, time: str) -> None:
    shelf.tested(cell)
    tag = names.tag(cell, "runtime", moving=True)
    ours = shelf.image(cell, "runtime", "ours")
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry(ours, platform=HERE)]}
    content["annotations"] = {"org.opencontainers.image.created": time}
    shelf.repository.put_manifest(tag, json.dumps(content).encode(), INDEX)
    (outcome,) = shelf.publish(cell)
    assert outcome.state == "published", outcome.error

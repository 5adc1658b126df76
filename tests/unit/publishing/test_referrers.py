"""What refers to a published image: found in every registry, whether it lists referrers or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftbuild.build import definitions
from ftbuild.config.schema import Config
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names, referrers, remote_image, signed_statements, substituted
from ftbuild.publishing.attest import manifests, provenance, sbom, vex
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.substituted import Substituted
from ftbuild.registry.client import Repository, referrers_tag
from testing import needs
from testing.listing_registry import listing
from testing.registries import Registry, plain
from tests.unit.publishing.shelf import GATES, Recorder, Shelf
from tests.unit.publishing.test_publish import plan_of
from tests.unit.publishing.test_trust import only

KINDS = [
    "application/vnd.ftbuild.gate.v1+json",
    "application/vnd.ftbuild.gate.v1+json",
    "application/spdx+json",
    *[manifests.LAYER] * 3,
]


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture(params=["fallback tag", "list"])
def either(request: pytest.FixtureRequest, shelf: Shelf, registry: Registry) -> Iterator[Shelf]:
    """A registry that knows nothing of referrers, and one that lists them."""
    if request.param == "fallback tag":
        yield shelf
        return
    with listing(registry.host) as host:
        name = shelf.names.repository.replace(registry.host, host)
        yield Shelf(names.Names(name, name), shelf.work, shelf.said)


def content(repository: Repository, digest: str) -> bytes:
    found = repository.manifest(digest)
    assert found
    assert found.content.layers
    return repository.part(found.content.layers[0])


def test_statements_and_gate_records_refer_to_the_published_index(either: Shelf, cell: Plan) -> None:
    either.tested(cell)
    assert only(either.publish(cell)).state == "published"
    there = either.repository
    for product in PRODUCTS:
        index = either.immutable(cell)[product]
        listed = there.referrers(index)
        assert sorted(raw["artifactType"] for raw in entries(there, index)) == sorted(KINDS)
        for part in listed:
            raw = there.manifest(part.digest)
            assert raw
            assert json.loads(raw.raw)["subject"]["digest"] == index
        found = remote_image.read(there, index)
        assert found
        stated = list(remote_image.statements(there, found))
        said = {(part.annotations or {}).get(manifests.PREDICATE_TYPE): part for part in listed}
        for text in stated:
            kind = json.loads(text)["predicateType"]
            if kind != sbom.PREDICATE:
                assert content(there, said[kind].digest) == text
        assert {provenance.PREDICATE, vex.PREDICATE, sbom.PREDICATE} <= said.keys()
        assert {(part.annotations or {}).get("org.opencontainers.image.created") for part in listed} == {
            cell.revision.time
        }
        records = {(part.annotations or {}).get("io.ftbuild.gate"): part.digest for part in listed}
        for gate in GATES:
            record = cell.folder(either.work) / gate.record
            assert content(there, records[gate.name]) == record.read_bytes()


def entries(there: Repository, digest: str) -> list[dict[str, Any]]:
    """Return the list of referrers as a registry or the tag has it."""
    tag = there.manifest(referrers_tag(digest))
    if tag:
        return list(json.loads(tag.raw)["manifests"])
    raws = [there.manifest(part.digest) for part in there.referrers(digest)]
    return [json.loads(raw.raw) for raw in raws if raw]


def test_the_sbom_that_refers_to_an_image_is_the_document_that_scanners_read(
    shelf: Shelf, cell: Plan
) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    index = shelf.immutable(cell)["runtime"]
    (listed,) = (
        raw for raw in entries(shelf.repository, index) if raw["artifactType"] == "application/spdx+json"
    )
    assert listed["annotations"]["in-toto.io/predicate-type"] == "https://spdx.dev/Document"
    assert json.loads(content(shelf.repository, listed["digest"]))["spdxVersion"] == "SPDX-2.3"


def test_what_is_said_of_an_image_is_what_its_build_and_its_tests_left(shelf: Shelf, cell: Plan) -> None:
    """Of the labels only those of the build; of what was taken in place of one only this very image."""
    labels = {"com.example.of-the-base": "1", definitions.CACHE_LABEL: definitions.REMOTE}
    built = shelf.tested(cell, **labels, **{"org.opencontainers.image.created": "2026-02-03T04:05:06Z"})
    folder, taken = cell.folder(shelf.work), f"registry.example.com/x@sha256:{'7' * 64}"
    ids = {"runtime": built["runtime"], "sdk": "sha256:" + "8" * 64}
    digest = taken.partition("@")[2]
    substituted.RECORD.write(
        folder, {product: Substituted(taken, digest, image, "ours") for product, image in ids.items()}
    )
    assert only(shelf.publish(cell, allow_shared_cache=True)).state == "published"
    for product in PRODUCTS:
        index = shelf.index(cell, product)
        assert index["annotations"].keys().isdisjoint(labels.keys() - {definitions.CACHE_LABEL})
        assert index["annotations"][definitions.CACHE_LABEL] == definitions.REMOTE
        assert index["annotations"]["io.ftbuild.gates"] == ",".join(gate.name for gate in GATES)
        image = remote_image.read(shelf.repository, shelf.immutable(cell)[product])
        assert image
        assert index["manifests"][0]["platform"] == {"architecture": "amd64", "os": "linux"}
        stated = {
            each["predicateType"]: each
            for each in map(json.loads, remote_image.statements(shelf.repository, image))
        }
        algorithm, _, value = image.image.descriptor.digest.partition(":")
        for each in stated.values():
            (subject,) = each["subject"]
            assert subject["digest"] == {algorithm: value}
            assert subject["name"].endswith(f"&tag={names.tag(cell, product)}")
        created = stated[sbom.PREDICATE]["predicate"]["creationInfo"]["created"]
        assert created == index["annotations"]["org.opencontainers.image.created"] == "2026-02-03T04:05:06Z"
        predicate = stated[provenance.PREDICATE]["predicate"]
        assert predicate["buildDefinition"]["externalParameters"]["product"] == product
        assert predicate["runDetails"]["byproducts"] == [
            {
                "name": gate.record,
                "mediaType": "application/json",
                "digest": {"sha256": hashlib.sha256((folder / gate.record).read_bytes()).hexdigest()},
            }
            for gate in sorted(GATES, key=lambda gate: gate.record)
        ]
        internal = predicate["buildDefinition"]["internalParameters"]
        assert internal["compilerCache"] == definitions.REMOTE
        assert internal.get("substitutedFrom") == (taken if product == "runtime" else None)


def test_without_the_time_of_a_build_nothing_is_said_of_it(shelf: Shelf, cell: Plan) -> None:
    """A label of an image may be empty; the SBOM, which must have a time, has that of the checkout."""
    shelf.tested(cell, **{"org.opencontainers.image.created": ""})
    assert only(shelf.publish(cell)).state == "published"
    index = shelf.index(cell, "runtime")
    assert "org.opencontainers.image.created" not in index["annotations"]
    listed = shelf.repository.referrers(shelf.immutable(cell)["runtime"])
    assert len(listed) == len(KINDS)
    assert all("org.opencontainers.image.created" not in (part.annotations or {}) for part in listed)


def test_a_record_that_is_attached_twice_is_signed_once(shelf: Shelf, cell: Plan) -> None:
    """Anybody who may push can attach it again, under other annotations."""
    shelf.tested(cell)
    shelf.publish(cell)
    there, digest = shelf.repository, shelf.immutable(cell)["runtime"]
    subject = there.head(digest)
    assert subject
    record = manifests.Blob(
        "application/vnd.ftbuild.gate.v1+json", (cell.folder(shelf.work) / GATES[0].record).read_bytes()
    )
    about = {"io.ftbuild.gate": GATES[0].name, "org.example": "again"}
    referrers.attach(
        there, subject, iter([referrers.Referrer("application/vnd.ftbuild.gate.v1+json", record, about)])
    )
    signer: Any = Recorder()
    session = PublishSession(Options(shelf.names, shelf.work))
    signed_statements.attach(session, digest, signer, shelf.said.append)
    kinds = ["openvex", "slsaprovenance1", "smoke", "spdxjson", "verify"]
    assert sorted(signer.done) == [(kind, f"{there.name}@{digest}") for kind in kinds]


class _Logged(Recorder):
    is_logged = True


def test_a_statement_that_the_public_log_would_not_take_is_left_out_and_no_other(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    there, digest = shelf.repository, shelf.immutable(cell)["runtime"]
    found = remote_image.present(there, digest)
    sizes = {
        signed_statements.gate(""): 0,
        **{
            json.loads(text)["predicateType"]: len(manifests.canonical(json.loads(text)["predicate"]))
            for text in remote_image.statements(there, found)
        },
    }
    monkeypatch.setattr(signed_statements, "MAX_LOGGED_BYTES", sizes[sbom.PREDICATE] - 1)
    large = {kind for kind, size in sizes.items() if size >= sizes[sbom.PREDICATE]}
    signer: Any = _Logged()
    session = PublishSession(Options(shelf.names, shelf.work))
    shelf.said.clear()
    signed_statements.attach(session, digest, signer, shelf.said.append)
    assert "the statement spdxjson is too large for the public log, and stays unsigned" in shelf.said
    assert len(shelf.said) == len(large)
    assert len(signer.done) == 5 - len(large)
    assert ("smoke", f"{there.name}@{digest}") in signer.done


def test_of_two_statements_of_a_kind_the_first_is_signed(shelf: Shelf, cell: Plan) -> None:
    """Ours comes first; others of any kind may follow in the same attestation manifest."""
    shelf.tested(cell)
    shelf.publish(cell)
    there = shelf.repository
    content = shelf.index(cell, "runtime")
    attested = json.loads(there.manifest(content["manifests"][1]["digest"]).raw)  # type: ignore[union-attr]
    first = attested["layers"][0]
    for kind in (sbom.PREDICATE, "https://example.com/other"):
        forged = {"_type": "x", "predicateType": kind, "subject": [], "predicate": {"evil": True}}
        put = there.put_blob(json.dumps(forged).encode(), first["mediaType"]).as_dict()
        attested["layers"].append({**put, "annotations": {"in-toto.io/predicate-type": kind}})
    raw = json.dumps(attested).encode()
    part = there.put_manifest("forged", raw, attested["mediaType"])
    content["manifests"][1] |= part.as_dict()
    digest = shelf.replace_index(cell, "runtime", content)
    signer = _Predicates()
    session = PublishSession(Options(shelf.names, shelf.work))
    signed_statements.attach(session, digest, signer, shelf.said.append)  # type: ignore[arg-type]
    assert sorted(kind for kind, _ in signer.done) == ["openvex", "slsaprovenance1", "spdxjson"]
    assert not any("evil" in predicate for predicate in signer.predicates)


class _Predicates(Recorder):
    """It keeps what it signs."""

    def __init__(self) -> None:
        super().__init__()
        self.predicates: list[dict[str, Any]] = []

    def attest(self, name: str, kind: str, predicate: Any, report: object) -> None:
        super().attest(name, kind, predicate, report)
        self.predicates.append(json.loads(predicate.read_bytes()))


def test_attaching_again_changes_nothing_and_keeps_what_others_attached(either: Shelf, cell: Plan) -> None:
    either.tested(cell)
    either.publish(cell)
    there, index = either.repository, either.immutable(cell)["runtime"]
    subject = there.head(index)
    assert subject
    theirs = referrers.Referrer(
        "text/plain", manifests.Blob("text/plain", b"somebody else's"), {"org.example": "1"}
    )
    referrers.attach(there, subject, iter([theirs]))
    before = {part.digest for part in there.referrers(index)}
    assert len(before) == len(KINDS) + 1
    referrers.attach(there, subject, iter([theirs]))
    assert {part.digest for part in there.referrers(index)} == before


def test_a_fallback_tag_that_is_no_list_is_replaced(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    there, index = shelf.repository, shelf.immutable(cell)["runtime"]
    subject, image = there.head(index), remote_image.read(there, index)
    assert subject
    assert image
    there.put_manifest(referrers_tag(index), image.image.raw, image.image.descriptor.media_type)
    assert there.referrers(index) == []
    text = referrers.Referrer("text/plain", manifests.Blob("text/plain", b"text"), {})
    referrers.attach(there, subject, iter([text]))
    assert len(there.referrers(index)) == 1


def test_oras_discovers_what_refers_to_an_image(either: Shelf, cell: Plan) -> None:
    oras = needs.tool("oras", "FTBUILD_ORAS")
    either.tested(cell)
    either.publish(cell)
    name = f"{either.repository.name}@{either.immutable(cell)['runtime']}"
    found = json.loads(shell.run([oras, "discover", "--plain-http", "--format", "json", name]).stdout)
    assert sorted(each["artifactType"] for each in found["referrers"]) == sorted(KINDS)


def test_the_registry_of_these_tests_lists_no_referrers(tmp_path: Path) -> None:
    """Else the fallback tag would not be tested."""
    import requests

    with plain(tmp_path / "registry") as running:
        answer = requests.get(f"http://{running.host}/v2/a/b/referrers/sha256:{'0' * 64}", timeout=10)
        assert answer.status_code == 404

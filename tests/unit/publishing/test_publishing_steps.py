"""The steps of publishing a cell: what is said of each, their order, and what is not done again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import committed, compression, names, pushed, remote_image
from ftbuild.publishing.session import Options, PublishSession
from tests.unit.publishing.shelf import GATES, Image, Recorder, Shelf
from tests.unit.publishing.test_engine_side import Engine, told
from tests.unit.publishing.test_publish import IDS, plan_of
from tests.unit.publishing.test_trust import only, refused


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(daemon, "connect", lambda: made.client)
    return made


def test_each_step_of_a_cell_is_said(shelf: Shelf, cell: Plan) -> None:
    """Reading layers and signing take minutes, in which a user should see what is going on."""
    shelf.tested(cell)
    signer: Any = Recorder()
    assert only(shelf.publish(cell, signer=signer, attest=True)).state == "published"
    reading = [
        f"reading the layers of the staged {product} image, which was pushed elsewhere"
        for product in PRODUCTS
    ]
    attesting = [f"attesting {product}: 0 Debian and 0 Python packages" for product in PRODUCTS]
    signing = [
        f"signing {what}" for product in PRODUCTS for what in (f"the statements about {product}", product)
    ]
    steps = [
        *reading,
        *attesting,
        *signing,
        f"published: {shelf.repository.name}:{names.tag(cell, 'runtime')}",
    ]
    assert shelf.said == [f"[22.12-sm86] {step}" for step in steps]
    statements = ["openvex", "slsaprovenance1", "smoke", "spdxjson", "verify"]
    for digest, done in zip(shelf.immutable(cell).values(), (signer.done[:6], signer.done[6:]), strict=True):
        assert {name for _, name in done} == {f"{shelf.repository.name}@{digest}"}
        *first, last = (kind for kind, _ in done)
        assert (sorted(first), last) == (statements, "image"), "the signature covers them, too"


def test_the_failure_of_a_cell_is_said_when_it_happens(shelf: Shelf, cell: Plan) -> None:
    """The table with all of them comes at the end of a night."""
    shelf.stage(cell)
    error = only(shelf.publish(cell)).error
    assert error
    assert shelf.said[-1] == f"[22.12-sm86] failed: {error}"
    assert "there is no record of verify" in shelf.said[-1]


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_local_image_that_is_not_published_is_not_pushed_either(
    shelf: Shelf, cell: Plan, engine: Engine, product: str
) -> None:
    """Neither is the other one of the pair."""
    for each in PRODUCTS:
        labels = {committed.REVISION: "0123abc-dirty"} if each == product else {}
        for name in (cell.tag(each), IDS[each]):
            engine.add(name, IDS[each], labels)
    shelf.judge(cell, IDS)
    refused(shelf.publish(cell), "built from files that are not committed")
    (foreseen,) = shelf.foresee(cell)
    assert "built from files that are not committed" in str(foreseen.error)
    assert engine.asked == []
    assert shelf.repository.tags() == []


def test_an_image_that_goes_while_it_is_published_is_named(shelf: Shelf, cell: Plan, engine: Engine) -> None:
    """Another command has built it anew, and its id is no image any more."""
    for product in PRODUCTS:
        engine.add(cell.tag(product), IDS[product])
    shelf.judge(cell, IDS)
    refused(shelf.publish(cell), f"the image {IDS['runtime']} has gone from the engine")
    assert shelf.repository.tags() == []


@pytest.mark.parametrize("unsmoked", [False, True])
def test_a_local_image_that_its_records_are_not_about_is_not_pushed(
    shelf: Shelf, cell: Plan, engine: Engine, unsmoked: bool
) -> None:
    """It was built again, and not verified since; the dry run says the same."""
    shelf.judge(cell, dict.fromkeys(PRODUCTS, f"sha256:{'e' * 64}"), [VERIFY] if unsmoked else GATES)
    for product in PRODUCTS:
        engine.add(cell.tag(product), IDS[product])
    refused(shelf.publish(cell, allow_unsmoked=unsmoked), "verify tested another runtime and sdk image")
    assert engine.asked == []
    (foreseen,) = shelf.foresee(cell, allow_unsmoked=unsmoked)
    assert "verify tested another runtime and sdk image" in str(foreseen.error)


def test_half_a_staged_pair_is_none(shelf: Shelf, cell: Plan) -> None:
    shelf.image(cell, "sdk", shelf.names.staged(cell, "sdk"))
    session = PublishSession(Options(shelf.names, shelf.work))
    with pytest.raises(PublishError) as half:
        session.staged(cell)
    assert str(half.value).splitlines() == [
        "22.12-sm86 is neither built here nor staged",
        f"  where: {shelf.repository.name}:staging-22.12-sm86-{cell.key}",
        "  next:  invoke build here, or invoke registry.stage where it is built, for this cell",
    ]


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_an_image_that_was_staged_from_here_is_not_pushed_again(
    shelf: Shelf, cell: Plan, engine: Engine, compression: str
) -> None:
    """Another one under its tag is, and so is one that a plan wants to be compressed otherwise."""
    plan = replace(cell, compression=compression)
    one, other = (shelf.image(plan, "sdk", tag) for tag in ("one", "other"))
    gzipped = compression == "gzip"
    assert staged(shelf, plan, engine, one) == ["pushing sdk"]
    there = remote_image.read(shelf.repository, "staged")
    assert there
    assert one.id in there.ids
    assert staged(shelf, plan, engine, one) == ([] if not gzipped else ["pushing sdk"])
    assert staged(shelf, plan, engine, other) == ["pushing sdk"]
    there = remote_image.read(shelf.repository, "staged")
    assert there
    assert other.id in there.ids


def staged(shelf: Shelf, plan: Plan, engine: Engine, image: Image) -> list[str]:
    """Stage a local image; return what is said of its push."""
    engine.add(image.id, image.id)
    engine.stream = [told(image.manifest.digest)]
    shelf.said.clear()
    found = PublishSession(Options(shelf.names, shelf.work)).stage(
        plan, "sdk", image.id, "staged", shelf.said.append
    )
    assert image.id in found.ids
    return [line for line in shelf.said if "compress" not in line]


def test_what_a_killed_command_has_left_as_the_engine_pushed_it_is_compressed(
    shelf: Shelf, cell: Plan
) -> None:
    """Its tag is set before its layers are compressed."""
    plan = replace(cell, compression=compression.ZSTD)
    shelf.tested(plan)
    assert only(shelf.publish(plan)).state == "published"
    published = [remote_image.read(shelf.repository, digest) for digest in shelf.immutable(plan).values()]
    staged = [remote_image.read(shelf.repository, shelf.names.staged(plan, each)) for each in PRODUCTS]
    for image in (*published, *staged):
        assert image is not None
        assert compression.has(image, compression.ZSTD)


def test_what_is_compressed_as_planned_is_left_as_it_was_staged_elsewhere(shelf: Shelf, cell: Plan) -> None:
    """What another machine has staged is not noted as pushed from here, so its statements are not trusted."""
    shelf.tested(cell)
    staged = {remote_image.read(shelf.repository, shelf.names.staged(cell, each)) for each in PRODUCTS}
    assert only(shelf.publish(cell)).state == "published"
    for image in staged:
        assert image
        digest = image.tagged.descriptor.digest
        assert not pushed.holds(cell.folder(shelf.work), shelf.names.staging, digest)

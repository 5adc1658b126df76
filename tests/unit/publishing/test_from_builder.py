"""Images that a builder pushes: where it is told to, what an engine pulls of them, and their staged tags."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.build import definitions
from ftbuild.build.definitions import Staging
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import compression, from_builder, names, push, pushed, remote_image
from ftbuild.publishing.names import Names
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.registry.client import Repository
from tests.unit.publishing import test_attest
from tests.unit.publishing.shelf import Shelf
from tests.unit.publishing.test_engine_side import Engine
from tests.unit.publishing.test_publish import IDS, plan_of


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()
    monkeypatch.setattr(daemon, "connect", lambda: found.client)
    return found


def session_of(shelf: Shelf) -> PublishSession:
    return PublishSession(Options(shelf.names, shelf.work))


@pytest.mark.parametrize("by_digest", [True, False])
def test_a_builder_pulls_a_base_from_its_registry_and_pushes_by_digest_if_it_can(
    config: Config, shelf: Shelf, by_digest: bool
) -> None:
    planned = plan_of(config, base="ngc")
    tag = f"staging-22.12-sm86-ngc-{planned.key}"
    given = from_builder.destination(
        session_of(shelf), planned, by_digest=by_digest, report=shelf.said.append
    )
    assert given == Staging(
        shelf.repository.name,
        planned.base.serving,
        planned.base.devel,
        None if by_digest else {"runtime": tag, "sdk": f"{tag}-sdk"},
    )
    assert (shelf.said, shelf.repository.tags()) == ([], [])


def test_a_base_that_was_built_here_is_pushed_to_where_images_are_staged(
    config: Config, shelf: Shelf, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = test_attest.plans(config, "open")[2]
    staging = f"{shelf.repository.name}/stage"
    session = PublishSession(Options(Names(shelf.repository.name, staging), shelf.work))
    elsewhere, key = replace(shelf, names=Names(staging, staging)), planned.base.serving.rpartition(":")[2]
    images = {
        name: elsewhere.image(planned, "runtime") for name in (planned.base.serving, planned.base.devel)
    }
    asked: list[tuple[str, str]] = []

    def push_image(
        client: object, image: str, repository: Repository, tag: str, report: object
    ) -> remote_image.RemoteImage:
        asked.append((f"{repository.name}:{tag}", image))
        (digest,) = (each.manifest.digest for each in images.values() if each.id == image)
        return remote_image.present(repository, digest)

    monkeypatch.setattr(push, "push_image", push_image)
    for name, image in images.items():
        engine.add(name, image.id)
    given = from_builder.destination(session, planned, by_digest=True, report=shelf.said.append)
    serving, devel = images.values()
    assert given == Staging(
        staging, f"{staging}@{serving.manifest.digest}", f"{staging}@{devel.manifest.digest}"
    )
    assert asked == [
        (f"{staging}:base-open-{key}", serving.id),
        (f"{staging}:base-open-{key}-devel", devel.id),
    ]
    assert shelf.said == [f"pushing base {name}" for name in images]


def test_buildx_tells_what_the_builder_has_pushed(cell: Plan, tmp_path: Path) -> None:
    """In bake's metadata file, by target (docker/buildx docs/reference/buildx_bake.md, `--metadata-file`)."""
    file = tmp_path / "metadata.json"
    told = {
        definitions.target_name(cell, product): {"containerimage.digest": IDS[product]}
        for product in PRODUCTS
    }
    file.write_text(json.dumps({**told, "buildx.build.warnings": []}))
    assert from_builder.pushed(file, cell) == IDS
    file.write_text(json.dumps(told).replace(IDS["sdk"], "latest"))
    with pytest.raises(PublishError) as refused:
        from_builder.pushed(file, cell)
    assert str(refused.value).splitlines() == [
        "buildx does not tell which images of 22.12-sm86 the builder pushed",
        f"  where: {file}",
        "  next:  repeat the build; if this repeats, use a newer docker buildx",
    ]


def test_what_a_builder_has_pushed_comes_here_under_the_name_that_a_build_gives(
    shelf: Shelf, cell: Plan, engine: Engine
) -> None:
    name = f"{shelf.repository.name}@{IDS['sdk']}"
    engine.add(name, "sha256:1")
    from_builder.fetch(session_of(shelf), cell, {"sdk": IDS["sdk"]}, report=shelf.said.append)
    assert engine.asked == [
        ("pull", name),
        ("tag", "sha256:1", cell.tag("sdk")),
        ("remove", name, "True"),
    ]
    assert shelf.said == [f"pulling sdk {name}"]


def test_staged_tags_are_set_to_what_was_verified_and_stored_as_ours(shelf: Shelf, cell: Plan) -> None:
    """Compressed, as the plan says, and so under another digest."""
    cell = replace(cell, compression=compression.ZSTD)
    images = {product: shelf.image(cell, product) for product in PRODUCTS}
    digests = {product: image.manifest.digest for product, image in images.items()}
    from_builder.stage(session_of(shelf), cell, digests, report=shelf.said.append)
    for product, image in images.items():
        tag = f"staging-{names.tag(cell, product)}"
        there = remote_image.read(shelf.repository, tag)
        assert there
        assert image.id in there.ids
        assert compression.has(there, compression.ZSTD)
        ours = pushed.digest(cell.folder(shelf.work), shelf.repository.name, tag)
        assert ours == there.tagged.descriptor.digest
    gone = f"sha256:{'0' * 64}"
    with pytest.raises(PublishError, match="an image vanished from the registry") as vanished:
        from_builder.stage(session_of(shelf), cell, {"sdk": gone}, report=shelf.said.append)
    assert vanished.value.where == f"{shelf.repository.name}@{gone}"

"""Compiled objects in a registry: which are brought, and which images that hold some are published."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.build import definitions
from ftbuild.build import objects as files
from ftbuild.build.objects import Taken
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import BuildError, HostError, PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names, objects, remote_image, substituted, verifying
from ftbuild.publishing.attest import manifests, provenance
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.substituted import Substituted
from ftbuild.publishing.verifying import PublicKey
from ftbuild.registry.client import Descriptor, Manifest, Repository, digest_of
from ftbuild.sources.lock import write_objects
from ftbuild.text import bounded_json
from testing.sample import copy_of_sample, sample_plan
from tests.unit.build.test_bake import docker_that
from tests.unit.publishing.shelf import LAYER, Shelf
from tests.unit.publishing.test_publish import plan_of
from tests.unit.publishing.test_substitution import public_keys  # noqa: F401  fixtures
from tests.unit.publishing.test_trust import keys, only, our_signer, refused, signer  # noqa: F401  fixtures

NAME = "11/91oei8lgai3dosnn9pa0adsptng7mj8"


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture
def ours(public_keys: tuple[Path, Path]) -> PublicKey:  # noqa: F811
    return PublicKey(str(public_keys[0]))


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine's part be done: the objects that a build has used are in a folder."""
    (tmp_path / "used" / NAME).parent.mkdir(parents=True)
    (tmp_path / "used" / NAME).write_text("machine code")
    monkeypatch.setattr(objects, "_exported", lambda *_: tmp_path / "used")


def published(shelf: Shelf, plan: Plan, signer: KeySigner | None) -> Plan:  # noqa: F811
    """Publish objects, and return the plan that a lock with them gives."""
    session = PublishSession(Options(shelf.names, shelf.work, signer=signer))
    digest = objects.publish(session, plan, shelf.said.append)
    return replace(plan, objects=f"{shelf.repository.name}@{digest}")


@pytest.mark.usefixtures("exported")
def test_objects_that_a_trusted_key_has_signed_are_brought(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
    tmp_path: Path,
) -> None:
    pinned = published(shelf, cell, signer)
    assert shelf.said == ["pushing 10.2 kB of objects", "signing objects", f"objects: {pinned.objects}"]
    shelf.said.clear()
    assert objects.bring(pinned, [ours], tmp_path / "there", shelf.said.append) == ours
    assert shelf.said == [f"fetching 10.2 kB of objects: {pinned.objects}"]
    assert (tmp_path / "there" / NAME).read_text() == "machine code"
    assert objects.locked(shelf.repository) == {cell.cell.id: pinned.objects}
    shelf.said.clear()
    assert published(shelf, cell, signer) == pinned
    assert shelf.said == [f"objects: {pinned.objects}"]


@pytest.mark.usefixtures("exported")
def test_objects_that_nobody_trusted_has_signed_are_refused(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    ours, theirs = (PublicKey(str(key)) for key in public_keys)
    pinned = published(shelf, cell, None)
    with pytest.raises(PublishError) as nobody:
        objects.bring(pinned, [ours, theirs], tmp_path / "there", shelf.said.append)
    assert nobody.value.what == f"they are signed by nobody who is trusted here ({ours}, {theirs})"
    assert nobody.value.where == pinned.objects
    published(shelf, cell, signer)
    with pytest.raises(PublishError, match="signed by nobody who is trusted here"):
        objects.bring(pinned, [theirs], tmp_path / "there", shelf.said.append)
    assert not (tmp_path / "there").exists()


@pytest.mark.usefixtures("exported")
def test_a_signed_image_in_place_of_objects_is_refused(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
    tmp_path: Path,
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    image = replace(cell, objects=f"{shelf.repository.name}@{shelf.immutable(cell)['runtime']}")
    with pytest.raises(PublishError, match="are no objects"):
        objects.bring(image, [ours], tmp_path / "there", shelf.said.append)


@pytest.mark.usefixtures("exported")
def test_the_lock_takes_moving_tags_of_objects_alone(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    pinned = published(shelf, cell, None)
    other = replace(cell, key=cell.key[::-1])
    newer = published(shelf, replace(other, revision=replace(cell.revision, commit="0" * 40)), None)
    assert {*shelf.repository.tags()} >= {
        objects.tag(cell),
        objects.tag(other),
        objects.tag(cell, moving=True),
    }
    assert objects.locked(shelf.repository) == {cell.cell.id: newer.objects}
    assert newer.objects != pinned.objects


@pytest.mark.usefixtures("exported")
def test_objects_of_a_stranger_under_the_tag_are_never_signed_nor_moved_to(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
    tmp_path: Path,
) -> None:
    theirs = published(shelf.elsewhere(tmp_path / "theirs"), cell, None)
    shelf.repository.delete(theirs.objects.partition("@")[2])
    for tag in (objects.tag(cell), objects.tag(cell, moving=True)):
        shelf.image(cell, "runtime", tag)
    before = shelf.repository.head(objects.tag(cell, moving=True))
    for key in (signer, None):
        with pytest.raises(PublishError, match="nothing here proves to be ours"):
            published(shelf, cell, key)
    head = shelf.repository.head(objects.tag(cell))
    assert head
    assert not ours.has_signed(f"{shelf.repository.name}@{head.digest}", print)
    assert shelf.repository.head(objects.tag(cell, moving=True)) == before


def test_a_cell_that_was_not_built_here_has_no_objects(shelf: Shelf, cell: Plan) -> None:
    session = PublishSession(Options(shelf.names, shelf.work))
    with pytest.raises(PublishError) as absent:
        objects.publish(session, cell, shelf.said.append)
    assert absent.value.what == "22.12-sm86 was not built here, so its objects are not here"
    assert absent.value.where == str(cell.folder(shelf.work) / "docker-bake.json")
    assert objects.tag(cell) not in shelf.repository.tags()


def test_what_was_taken_from_a_registry_has_no_objects(
    shelf: Shelf, cell: Plan, tmp_path: Path, exported: None
) -> None:
    """Unless they were published before: those are what a build of the same inputs takes."""
    image = Substituted(f"{shelf.repository.name}@sha256:{'0' * 64}", f"sha256:{'0' * 64}", "x", "a key")
    substituted.RECORD.write(cell.folder(shelf.work), {"runtime": image})
    session = PublishSession(Options(shelf.names, shelf.work))
    assert objects.publish(session, cell, shelf.said.append) == ""
    assert shelf.said == ["nothing was compiled here, so there are no objects to be published"]
    assert shelf.repository.tags() == []
    substituted.RECORD.discard(cell.folder(shelf.work))
    pinned = published(shelf, cell, None)
    substituted.RECORD.write(cell.folder(shelf.work), {"runtime": image})
    assert published(shelf, cell, None) == pinned


@pytest.mark.parametrize(
    ("layers", "odd"),
    [
        ([], True),
        ([{"mediaType": objects.LAYER}], False),
        ([{"mediaType": objects.LAYER}] * 2, True),
        ([{"mediaType": LAYER}], True),
        ([{"mediaType": objects.LAYER, "size": files.MAX_BYTES + 1}], True),
    ],
)
def test_only_one_layer_of_limited_size_is_fetched_for_objects(
    shelf: Shelf,
    cell: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layers: list[dict[str, Any]],
    odd: bool,
) -> None:
    """Whoever is trusted for images has signed other things, too."""
    (tmp_path / NAME).parent.mkdir()
    (tmp_path / NAME).write_text("machine code")
    put = shelf.repository.put_blob(files.pack(tmp_path), objects.LAYER).as_dict()
    empty = shelf.repository.put_blob(b"{}", "application/vnd.oci.empty.v1+json").as_dict()
    content = {"schemaVersion": 2, "mediaType": manifests.MANIFEST, "config": empty}
    raw = json.dumps({**content, "layers": [{**put, **each} for each in layers]}).encode()
    digest = digest_of(raw)
    answers = {digest: Manifest(Descriptor(manifests.MANIFEST, digest, len(raw)), raw)}
    monkeypatch.setattr(Repository, "manifest", lambda repository, reference: answers.get(reference))
    trusted = PublicKey("a key")
    monkeypatch.setattr(verifying, "signer_of", lambda *_: trusted)
    pinned = replace(cell, objects=f"{shelf.repository.name}@{digest}")
    if not odd:
        assert objects.bring(pinned, [], tmp_path / "there", print) == trusted
        assert (tmp_path / "there" / NAME).read_text() == "machine code"
        answers.clear()
    with pytest.raises(PublishError) as refused:
        objects.bring(pinned, [], tmp_path / "again", print)
    assert refused.value.where == pinned.objects
    assert refused.value.what == (
        "what is under their digest are no objects" if odd else "the registry does not have them any more"
    )
    assert not (tmp_path / "again").exists()


# The lock


@pytest.mark.parametrize(
    ("tag", "cell"),
    [
        ("objects-22.12-sm80", "22.12-sm80"),
        (
            "objects-22.12-sm80_86-ngc-without-beams-heads-64_128",
            "22.12-sm80_86-ngc-without-beams-heads-64_128",
        ),
        ("objects-22.12-sm80-0123456789ab", None),
        ("objects-22.12-sm80-0123456789ab0", "22.12-sm80-0123456789ab0"),
        ("objects-latest", None),
        ("objects-22.12", None),
        ("22.12-sm80", None),
    ],
)
def test_a_tag_of_the_newest_objects_is_told_from_others(shelf: Shelf, tag: str, cell: str | None) -> None:
    digest = shelf.image_of([b"layer"], tag).manifest.digest
    assert objects.locked(shelf.repository) == ({cell: f"{shelf.repository.name}@{digest}"} if cell else {})


def test_the_lock_with_objects_gives_plans_of_the_same_key(tmp_path: Path) -> None:
    folder = copy_of_sample(tmp_path)
    before = sample_plan(folder)
    pinned = f"registry.example.com/team/image@sha256:{'0' * 64}"
    write_objects(loader.load(folder), {before.cell.id: pinned})
    after = sample_plan(folder)
    assert (after.objects, after.key) == (pinned, before.key)
    assert before.objects == sample_plan(folder, "86").objects == ""


# Images with objects of others


def with_objects(shelf: Shelf, plan: Plan, pinned: Plan) -> None:
    """Stage a tested pair whose build took objects, with the record."""
    shelf.tested(plan, **{definitions.OBJECTS_LABEL: pinned.objects})
    taken = Taken(
        pinned.objects, "the key ours.pub", {"backend": ("/src/a.cc",)}, {"backend": ("/src/b.cu",)}
    )
    files.RECORD.write(plan.folder(shelf.work), taken)


@pytest.mark.usefixtures("exported")
def test_images_with_objects_are_published_if_who_signed_these_is_trusted(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],  # noqa: F811
) -> None:
    ours, theirs = (PublicKey(str(key)) for key in public_keys)
    pinned = published(shelf, cell, signer)
    with_objects(shelf, cell, pinned)
    for outcomes in (shelf.publish(cell), publish_trusting(shelf, cell, theirs)):
        refused(outcomes, "objects that nobody who is trusted here has signed")
        refused(outcomes, f"label io.ftbuild.objects of the runtime image: {pinned.objects}")
    (foreseen,) = shelf.foresee(cell)
    assert foreseen.error
    (foreseen,) = shelf.foresee(cell, signer=signer)
    assert foreseen.error is None, "who signed them publishes with that key"
    assert only(publish_trusting(shelf, cell, ours)).state == "published"
    for product in PRODUCTS:
        (said,) = dependencies(shelf, cell, product)
        assert said["digest"]["sha256"] == pinned.objects.rpartition(":")[2]
        assert said["annotations"]["found"] == {"backend": ["/src/a.cc"]}
        assert said["annotations"]["compiled"] == {"backend": ["/src/b.cu"]}


@pytest.mark.usefixtures("exported")
def test_images_whose_record_of_objects_is_lost_are_not_published(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    pinned = published(shelf, cell, signer)
    with_objects(shelf, cell, pinned)
    record = cell.folder(shelf.work) / files.RECORD.name
    record.write_text(record.read_text().replace(pinned.objects, pinned.objects[:-6] + "000000"))
    refused(publish_trusting(shelf, cell, ours), "no record here tells which")
    record.write_text("{}")
    refused(publish_trusting(shelf, cell, ours), "is damaged")


def publish_trusting(shelf: Shelf, plan: Plan, *trusted: PublicKey):  # type: ignore[no-untyped-def]
    from ftbuild.publishing import publish

    options = Options(shelf.names, shelf.work, trusted=trusted)
    return publish.publish_cells([plan], options, report=shelf.said.append)


def dependencies(shelf: Shelf, plan: Plan, product: str) -> list:  # type: ignore[type-arg]
    """Return the objects among what the provenance of a published image says it was made of."""
    found = remote_image.read(shelf.repository, names.tag(plan, product))
    assert found
    for text in remote_image.statements(shelf.repository, found):
        said = bounded_json.loads(text)
        if said["predicateType"] == provenance.PREDICATE:
            made_of = said["predicate"]["buildDefinition"]["resolvedDependencies"]
            return [each for each in made_of if each["name"] == "objects"]
    return []


def test_an_artifact_with_objects_is_of_the_form_that_registries_take(
    shelf: Shelf, cell: Plan, tmp_path: Path, exported: None
) -> None:
    published(shelf, cell, None)
    found = shelf.repository.manifest(f"objects-22.12-sm86-{cell.key}")
    assert found
    content = json.loads(found.raw)
    (layer,) = content.pop("layers")
    empty = Descriptor("application/vnd.oci.empty.v1+json", digest_of(b"{}"), 2)
    assert found.descriptor.media_type == content["mediaType"]
    assert content == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.ftbuild.objects.v1",
        "config": empty.as_dict(),
        "annotations": {
            "io.ftbuild.cell": "22.12-sm86",
            "io.ftbuild.key": cell.key,
            "io.ftbuild.base": cell.base.devel,
            "org.opencontainers.image.title": "objects of triton_with_ft 22.12-sm86",
            "org.opencontainers.image.created": cell.revision.time,
            "org.opencontainers.image.revision": cell.revision.commit,
        },
    }
    assert layer["mediaType"] == "application/vnd.ftbuild.objects.v1.tar"
    assert shelf.repository.blob(layer["digest"]) == files.pack(tmp_path / "used")
    assert shelf.repository.blob(empty.digest) == b"{}"


def test_a_build_that_left_no_objects_publishes_none(
    shelf: Shelf, cell: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_exported", lambda *_: tmp_path)
    with pytest.raises(BuildError, match="has left no objects"):
        published(shelf, cell, None)


@pytest.fixture
def built(shelf: Shelf, cell: Plan) -> Path:
    """Return the folder of a cell that was built here."""
    folder = cell.folder(shelf.work)
    folder.mkdir(parents=True)
    (folder / "docker-bake.json").write_text("{}")
    return folder


def test_the_objects_are_those_that_the_build_itself_gives(
    shelf: Shelf, cell: Plan, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of this machine, with their passwords, do not change which these are: bake gets none."""
    (built / "used-objects" / NAME).parent.mkdir(parents=True)
    (built / "used-objects" / NAME).write_text("of a build before")
    (built / objects.LOG).write_text("of a build before\n")
    other = "12/91oei8lgai3dosnn9pa0adsptng7mj8"
    give = f"mkdir -p used-objects/12; echo code > used-objects/{other}"
    docker_that(tmp_path, monkeypatch, f'echo "docker $*, settings: ${{HOST_SETTINGS-none}}"; {give}')
    monkeypatch.setenv("HOST_SETTINGS", "CCACHE_REMOTE_STORAGE=redis://user:hunter22@storage")
    pinned = published(shelf, cell, None)
    found = shelf.repository.manifest(pinned.objects.partition("@")[2])
    assert found
    (layer,) = found.content.layers or []
    with tarfile.open(fileobj=io.BytesIO(shelf.repository.part(layer))) as archive:
        assert archive.getnames() == [other]
    target = definitions.target_name(cell, "used-objects")
    assert (built / "objects.log").read_text() == (
        f"docker buildx bake --file docker-bake.json --progress plain {target}, settings: \n"
    )


def test_objects_are_collected_again_without_layers_that_the_cache_has_lost(
    shelf: Shelf, cell: Plan, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "echo 'ERROR: failed to solve: layer does not exist'; exit 1"
    give = f"mkdir -p used-objects/11; echo code > used-objects/{NAME}"
    docker_that(tmp_path, monkeypatch, f'case "$*" in *--no-cache) {give};; *) {gone};; esac')
    published(shelf, cell, None)
    assert [line for line in shelf.said if line.startswith("a layer of the build cache is gone")]


@pytest.mark.parametrize("end", ["kill -KILL $$", "exit 255"], ids=["docker", "its plugin"])
def test_objects_whose_collection_is_killed_are_no_failed_build(
    shelf: Shelf, cell: Plan, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    docker_that(tmp_path, monkeypatch, f"echo '#1 still copying'; {end}")
    with pytest.raises(HostError, match=r"^docker buildx bake was ended by") as killed:
        published(shelf, cell, None)
    assert killed.value.where == str(built / objects.LOG)


STEPS = "echo '#9 [backend 1/1] RUN compile'; echo '#9 DONE 900.0s'"


@pytest.mark.parametrize(
    ("script", "why", "told"),
    [
        (f"{STEPS}; echo '#9 0.5 fatal error: no such file'; exit 1", "fatal error: no such file", "backend"),
        ("exit 3", "docker buildx bake ended with code 3", ""),
    ],
)
def test_what_is_compiled_again_for_its_objects_is_shown_and_its_failure_named(
    shelf: Shelf,
    cell: Plan,
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    why: str,
    told: str,
) -> None:
    """The engine's cache may have lost everything: half an hour of work must not look like a hang."""
    docker_that(tmp_path, monkeypatch, script)
    with pytest.raises(BuildError, match=f"^the objects cannot be exported: .*{why}") as raised:
        published(shelf, cell, None)
    assert raised.value.where == str(built / objects.LOG)
    first, *steps = shelf.said
    assert first == f"collecting the objects of the build, log: {built / objects.LOG}"
    assert told in "\n".join(steps)

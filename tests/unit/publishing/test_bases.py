"""Bases in a registry: which are taken in place of making them, and which are published.

Registry and cosign are real; what the engine does is done. tests/engine/test_elsewhere.py pushes and pulls.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from ftbuild.build import base
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon, made
from ftbuild.engine.container import ContainerError
from ftbuild.errors import FtbuildError, HostError, PublishError
from ftbuild.plan import Plan
from ftbuild.publishing import bases, objects, push, remote_image, staging
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.substitution import Substitutes
from ftbuild.publishing.verifying import PublicKey
from ftbuild.registry.client import Repository
from testing.publishing import tar
from tests.unit.publishing import test_attest
from tests.unit.publishing.shelf import Image, Recorder, Shelf
from tests.unit.publishing.test_substitution import public_keys  # noqa: F401  fixtures
from tests.unit.publishing.test_trust import keys, our_signer, signer  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def cell(config: Config) -> Plan:
    """A cell on a base that is built here."""
    return test_attest.plans(config, "open")[2]


@pytest.fixture
def images(cell: Plan, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> dict[str, Image]:
    """Let the engine have both images of the base, and push those that are in the registry already."""
    serving, devel = (shelf.image(cell, "runtime", f"made-{number}") for number in range(2))
    found = {cell.base.serving: serving, cell.base.devel: devel}

    def pushed(
        client: object, image: str, repository: Repository, tag: str, report: object
    ) -> remote_image.RemoteImage:
        ((name, digest),) = ((name, each.manifest.digest) for name, each in found.items() if each.id == image)
        assert tag == f"staging-{bases.tag(name)}"
        there = remote_image.read(repository, digest)
        assert there
        return there

    monkeypatch.setattr(push, "push_image", pushed)
    monkeypatch.setattr(PublishSession, "local", lambda session, name: found[name].id)
    monkeypatch.setattr(PublishSession, "client", None)
    monkeypatch.setattr(PublishSession, "compressed", lambda session, plan, repository, image, report: image)
    monkeypatch.setattr(container, "produced", programs)
    return found


@contextmanager
def programs(client: object, image: str, script: str, path: str) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield what a compiler image gives: its tools in a folder, which is named as `path` is."""
    files = {
        f"{Path(path).name}/{name}": f"{name} of {image}".encode() for name in ("cuobjdump", "libz.so.1")
    }
    yield "", [tar(files)]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the digests that are pulled, by the name that they get; no base is here."""
    digests: dict[str, str] = {}

    def fetch(session: object, wanted: dict[str, str], tags: dict[str, list[str]], *, report: object) -> None:
        assert tags == {image: [image] for image in wanted}
        digests.update(wanted)

    monkeypatch.setattr(base, "is_present", lambda *_: False)
    monkeypatch.setattr(staging, "fetch", fetch)
    monkeypatch.setattr(daemon, "image", lambda *_: None)
    monkeypatch.setattr(daemon, "require_image", lambda client, name: f"the id of {name}")
    return digests


def named(plan: Plan) -> tuple[str, str, str]:
    return plan.base.serving, plan.base.devel, plan.base.tools


@dataclass(frozen=True)
class Site:
    """A registry, the base of a cell with its images by name, who signs, and what is pulled."""

    shelf: Shelf
    cell: Plan
    images: dict[str, Image]
    fetched: dict[str, str]
    signer: KeySigner
    ours: PublicKey

    def publish(self, by: KeySigner | None) -> None:
        session = PublishSession(Options(self.shelf.names, self.shelf.work, signer=by))
        bases.publish(session, self.cell, self.shelf.said.append)

    def take(self, *trusted: PublicKey, compiles: bool = True) -> None:
        self.shelf.said.clear()
        self.fetched.clear()
        substitutes, client = Substitutes(self.shelf.names, trusted, self.shelf.work), cast("Any", None)
        bases.take(substitutes, client, self.cell, self.cache, self.shelf.said.append, compiles=compiles)

    @property
    def cache(self) -> Path:
        """The folder with the ids of the bases that are known here."""
        return self.shelf.work / "cache"

    def heads(self) -> dict[str, str]:
        found = {name: self.shelf.repository.head(bases.tag(name)) for name in named(self.cell)}
        return {name: head.digest for name, head in found.items() if head}

    def put(self, image: Image, tag: str, name: str) -> None:
        """Put an index of an image under a tag, which says that it is the base of this name."""
        platform = {"architecture": "amd64", "os": "linux"}
        content = {
            "schemaVersion": 2,
            "mediaType": manifests.INDEX,
            "manifests": [{**image.manifest.as_dict(), "platform": platform}],
            "annotations": {bases.NAME: name},
        }
        self.shelf.repository.put_manifest(tag, manifests.canonical(content), manifests.INDEX)


@pytest.fixture
def site(
    shelf: Shelf,
    cell: Plan,
    images: dict[str, Image],
    fetched: dict[str, str],
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],  # noqa: F811
) -> Site:
    return Site(shelf, cell, images, fetched, signer, PublicKey(str(public_keys[0])))


def test_a_base_that_a_trusted_key_has_signed_is_taken_as_it_was_published(site: Site) -> None:
    site.publish(site.signer)
    assert [line for line in site.shelf.said if line.startswith(("pushing", "signing"))] == [
        f"{doing} {name}" for name in named(site.cell) for doing in ("pushing", "signing")
    ]
    site.take(site.ours)
    taken = named(site.cell)[:2]
    assert site.fetched == {name: site.heads()[name] for name in taken}
    assert site.shelf.said == []
    assert made.FILE.read(site.cache) == {name: (f"the id of {name}",) for name in taken}
    key = site.cell.base.serving.rpartition(":")[2]
    for name, tag in zip(taken, (f"base-open-{key}", f"base-open-{key}-devel"), strict=True):
        index = site.shelf.repository.manifest(tag)
        assert index
        assert index.descriptor.digest == site.fetched[name]
        assert index.descriptor.media_type == manifests.INDEX
        platform = {"architecture": "amd64", "os": "linux"}
        assert json.loads(index.raw) == {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{**site.images[name].manifest.as_dict(), "platform": platform}],
            "annotations": {"io.ftbuild.base-image": name, "io.ftbuild.snapshot": site.cell.base.snapshot},
        }


def test_a_base_that_is_here_is_not_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(base, "is_present", lambda *given: not asked.append(given))  # type: ignore[func-returns-value]
    site.take(site.ours)
    assert (site.fetched, site.shelf.said) == ({}, [])
    assert asked == [(None, site.cell, site.cache, site.shelf.said.append)]


def test_what_only_verifies_takes_the_tools_for_the_compiler_image(site: Site) -> None:
    site.publish(site.signer)
    serving, devel, tools = named(site.cell)
    site.take(site.ours, compiles=False)
    assert site.fetched == {name: site.heads()[name] for name in (serving, tools)}
    assert made.FILE.read(site.cache) == {name: (f"the id of {name}",) for name in (serving, tools)}
    site.shelf.repository.delete(site.heads()[tools])
    site.take(site.ours, compiles=False)
    assert site.fetched == {name: site.heads()[name] for name in (serving, devel)}


def test_the_tools_are_one_layer_more_than_the_base_serves_from(site: Site) -> None:
    site.publish(site.signer)
    serving, devel, tools = named(site.cell)
    assert tools == f"{serving}-tools"
    repository = site.shelf.repository
    below = remote_image.present(repository, bases.tag(serving)).image
    image = remote_image.present(repository, bases.tag(tools)).image
    *layers, layer = image.content.layers or []
    assert layers == below.content.layers
    with tarfile.open(fileobj=io.BytesIO(repository.part(layer)), mode="r:") as archive:
        entries = {entry.name: (entry.mode, archive.extractfile(entry)) for entry in archive}
    assert {name: (mode, file.read() if file else b"") for name, (mode, file) in entries.items()} == {
        f"opt/ftbuild-tools/{name}": (0o755, f"{name} of {site.images[devel].id}".encode())
        for name in ("cuobjdump", "libz.so.1")
    }
    assert image.content.config
    config = json.loads(repository.part(image.content.config))
    (rootfs,) = [each.rootfs for each in [repository.config(below)] if each.rootfs]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [*rootfs.diff_ids, layer.digest]}
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    path, loads = config["config"]["Env"]
    assert path.startswith("PATH=/opt/ftbuild-tools:")
    assert loads == "LD_LIBRARY_PATH=/opt/ftbuild-tools"


def test_the_tools_stand_on_the_image_that_was_signed_whatever_its_tag_leads_to_by_then(site: Site) -> None:
    """Whoever may push can move a tag at any time."""
    strange = site.shelf.image(site.cell, "runtime", "strange")
    serving, _, tools = named(site.cell)

    class Mover(Recorder):
        def sign(self, name: str, report: object) -> None:
            super().sign(name, report)
            if len(self.done) == 1:
                site.put(strange, bases.tag(serving), serving)

    mover: Any = Mover()
    site.publish(mover)
    repository = site.shelf.repository
    assert remote_image.present(repository, bases.tag(serving)).image.descriptor == strange.manifest
    below = remote_image.present(repository, site.images[serving].manifest.digest).image.content.layers
    image = remote_image.present(repository, bases.tag(tools)).image
    assert (image.content.layers or [])[:-1] == below


def test_a_compiler_image_without_the_tools_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ContainerError("a script ended with code 1")

    monkeypatch.setattr(container, "produced", fail)
    with pytest.raises(PublishError, match="a script ended with code 1"):
        site.publish(site.signer)


def test_a_base_that_cannot_be_fetched_is_made_here(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publish(site.signer)
    for failure in (PublishError("the registry refuses"), HostError("the engine is gone")):

        def fail(*_: object, failure: FtbuildError = failure, **__: object) -> None:
            raise failure

        monkeypatch.setattr(staging, "fetch", fail)
        site.take(site.ours)
        assert site.shelf.said == [
            f"the base of {site.shelf.repository.name} is not used, so it is made here: {failure.what}"
        ]
    assert made.FILE.read(site.cache) is None


def test_a_base_is_published_once(site: Site) -> None:
    site.publish(None)
    before = site.heads()
    site.shelf.said.clear()
    site.publish(site.signer)
    assert [line.split()[0] for line in site.shelf.said if line.startswith(("pushing", "signing"))] == [
        "signing",
        "signing",
        "signing",
    ]
    site.shelf.said.clear()
    site.publish(site.signer)
    assert (site.shelf.said, site.heads()) == ([], before)


@pytest.mark.parametrize("lost", [1, 2], ids=["devel", "tools"])
def test_an_image_of_a_base_is_published_where_those_before_it_are_signed_already(
    site: Site, lost: int
) -> None:
    """A run was killed between them, or was of a version that knew no tools."""
    recorder: Any = Recorder()
    site.publish(recorder)
    name, before = named(site.cell)[lost], site.heads()
    site.shelf.repository.delete(before[name])
    site.shelf.said.clear()
    del recorder.done[lost]
    site.publish(recorder)
    assert site.shelf.said == [f"pushing {name}", f"signing {name}"]
    assert site.heads() == before


def test_a_base_is_known_by_its_manifest_where_the_engine_names_images_so(site: Site) -> None:
    """An engine with containerd's store does; in the registry an index is around the manifest."""
    for name, image in site.images.items():
        site.images[name] = Image(image.manifest, image.manifest.digest)
    site.publish(None)
    before = site.heads()
    site.shelf.said.clear()
    site.publish(None)
    assert (site.shelf.said, site.heads()) == ([], before)


def test_a_base_and_objects_are_published_with_a_cell_where_that_is_wanted(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "used" / "11" / "91oei8lgai3dosnn9pa0adsptng7mj8"
    compiled.parent.mkdir(parents=True)
    compiled.write_text("machine code")
    monkeypatch.setattr(objects, "_exported", lambda *_: tmp_path / "used")
    site.shelf.tested(site.cell)
    assert [outcome.state for outcome in site.shelf.publish(site.cell)] == ["published"]
    assert site.heads() == {}
    assert objects.locked(site.shelf.repository) == {}
    assert [outcome.state for outcome in site.shelf.publish(site.cell, objects=True)] == ["present"]
    assert set(site.heads()) == set(named(site.cell))
    assert set(objects.locked(site.shelf.repository)) == {site.cell.cell.id}


def test_a_base_that_nobody_trusted_has_signed_is_made_here(
    site: Site,
    public_keys: tuple[Path, Path],  # noqa: F811
) -> None:
    site.publish(None)
    site.take(site.ours)
    site.publish(site.signer)
    said = list(site.shelf.said)
    site.take(PublicKey(str(public_keys[1])))
    assert site.fetched == {}
    for (line,) in ([line for line in said if "made here" in line], site.shelf.said):
        assert "so it is made here" in line
        assert "is signed by nobody who is trusted here" in line


def test_what_is_signed_under_another_name_is_no_base(site: Site) -> None:
    """Whoever may push can set a tag to what we have signed for another one."""
    site.publish(site.signer)
    serving, devel, _ = named(site.cell)
    index = site.shelf.repository.manifest(bases.tag(serving))
    assert index
    site.shelf.repository.put_manifest(bases.tag(devel), index.raw, manifests.INDEX)
    site.take(site.ours)
    assert site.fetched == {}
    (line,) = site.shelf.said
    assert f"what is signed is not {devel}" in line


def test_half_a_base_is_not_taken(site: Site) -> None:
    site.take(site.ours)
    nothing, name = list(site.shelf.said), site.cell.base.serving
    site.put(site.images[name], bases.tag(name), name)
    site.signer.sign(f"{site.shelf.repository.name}@{site.heads()[name]}", print)
    site.take(site.ours)
    assert site.fetched == {}
    assert site.shelf.said == nothing == [f"{site.shelf.repository.name} has no base {name}: making it"]


@pytest.mark.parametrize("number", range(3), ids=["serving", "devel", "tools"])
@pytest.mark.parametrize("of", ["another image", "another name"])
def test_another_image_under_the_tag_of_a_base_is_never_signed(site: Site, of: str, number: int) -> None:
    site.publish(None)
    name = named(site.cell)[number]
    site.shelf.repository.delete(site.heads()[name])
    if of == "another image":
        site.put(site.shelf.image(site.cell, "runtime", "strange"), bases.tag(name), name)
    else:
        site.put(site.images[site.cell.base.serving], bases.tag(name), "ftbuild-base-open:another")
    digest = site.heads()[name]
    with pytest.raises(PublishError) as refused:
        site.publish(site.signer)
    assert str(refused.value).splitlines() == [
        f"the registry has another image under {bases.tag(name)} than the base that was made here",
        f"  where: {site.shelf.repository.name}@{digest}",
        "  next:  find out who set the tag; delete it in the registry, then publish again",
    ]
    assert not site.signer.has_signed(f"{site.shelf.repository.name}@{digest}", print)


def test_a_base_from_a_registry_is_neither_published_nor_taken(site: Site, config: Config) -> None:
    other, before = replace(site, cell=test_attest.plans(config, "ngc")[0]), site.shelf.repository.tags()
    other.publish(None)
    other.take(site.ours)
    assert (site.fetched, site.shelf.said, site.shelf.repository.tags()) == ({}, [], before)

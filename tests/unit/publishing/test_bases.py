"""Bases in a registry: which are taken in place of making them, and which are published.

Registry and cosign are real; what the engine does is done. tests/engine/test_elsewhere.py pushes and pulls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ftbuild.build import base
from ftbuild.config.schema import Config
from ftbuild.engine import daemon, made
from ftbuild.errors import PublishError
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import bases, push, remote_image, staging
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.substitution import Substitutes
from ftbuild.publishing.verifying import PublicKey
from ftbuild.registry.client import Repository
from tests.unit.publishing import test_attest
from tests.unit.publishing.shelf import Image, Shelf
from tests.unit.publishing.test_substitution import public_keys  # noqa: F401  fixtures
from tests.unit.publishing.test_trust import keys, our_signer, signer  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def cell(config: Config) -> Plan:
    """A cell on a base that is built here."""
    return test_attest.plans(config, "open")[2]


@pytest.fixture
def images(cell: Plan, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> dict[str, Image]:
    """Let the engine have both images of the base, and push those that are in the registry already."""
    found = {name: shelf.image(cell, "runtime", f"made-{number}") for number, name in enumerate(named(cell))}

    def pushed(client: object, image: str, repository: Repository, *_: object) -> remote_image.RemoteImage:
        (digest,) = (each.manifest.digest for each in found.values() if each.id == image)
        there = remote_image.read(repository, digest)
        assert there
        return there

    monkeypatch.setattr(push, "push_image", pushed)
    monkeypatch.setattr(PublishSession, "local", lambda session, name: found[name].id)
    monkeypatch.setattr(PublishSession, "client", None)
    monkeypatch.setattr(PublishSession, "compressed", lambda session, plan, repository, image, report: image)
    return found


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the digests that are pulled, by the name that they get; no base is here."""
    digests: dict[str, str] = {}

    def fetch(session: object, image: str, digest: str, names: list[str], *, report: object) -> None:
        assert names == [image]
        digests[image] = digest

    monkeypatch.setattr(base, "is_present", lambda *_: False)
    monkeypatch.setattr(staging, "fetch", fetch)
    monkeypatch.setattr(daemon, "image", lambda *_: None)
    monkeypatch.setattr(daemon, "require_image", lambda client, name: name)
    monkeypatch.setattr(made, "note", lambda *_: None)
    return digests


def named(plan: Plan) -> tuple[str, str]:
    return plan.base.serving, plan.base.devel


def publish(shelf: Shelf, plan: Plan, signer: KeySigner | None) -> None:  # noqa: F811
    bases.publish(PublishSession(Options(shelf.names, shelf.work, signer=signer)), plan, shelf.said.append)


def take(shelf: Shelf, plan: Plan, *trusted: PublicKey) -> None:
    shelf.said.clear()
    substitutes = Substitutes(shelf.names, trusted, shelf.work)
    bases.take(substitutes, None, plan, Path("/nowhere"), shelf.said.append)  # type: ignore[arg-type]


def heads(shelf: Shelf, plan: Plan) -> dict[str, str]:
    found = {name: shelf.repository.head(bases.tag(name)) for name in named(plan)}
    return {name: head.digest for name, head in found.items() if head}


def put(shelf: Shelf, image: Image, tag: str, name: str) -> None:
    """Put an index of an image under a tag, which says that it is the base of this name."""
    content: dict[str, Any] = {"schemaVersion": 2, "mediaType": manifests.INDEX}
    content["manifests"] = [
        {**image.manifest.as_dict(), "platform": {"architecture": "amd64", "os": "linux"}}
    ]
    content["annotations"] = {bases.NAME: name}
    shelf.repository.put_manifest(tag, manifests.canonical(content), manifests.INDEX)


@pytest.fixture
def ours(public_keys: tuple[Path, Path]) -> PublicKey:  # noqa: F811
    return PublicKey(str(public_keys[0]))


def test_a_base_that_a_trusted_key_has_signed_is_taken_as_it_was_published(
    shelf: Shelf,
    cell: Plan,
    images: dict[str, Image],
    fetched: dict[str, str],
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    publish(shelf, cell, signer)
    take(shelf, cell, ours)
    assert fetched == heads(shelf, cell)
    assert set(fetched) == set(named(cell))
    assert shelf.said == []
    for name, digest in fetched.items():
        there = remote_image.read(shelf.repository, digest)
        assert there
        assert images[name].id in there.ids
        (entry,) = there.tagged.content.manifests or []
        assert entry.platform == {"architecture": "amd64", "os": "linux"}
        assert (there.tagged.content.annotations or {})[f"{LABELS}.snapshot"] == cell.base.snapshot


@pytest.mark.usefixtures("images")
def test_a_base_is_published_once(shelf: Shelf, cell: Plan, signer: KeySigner) -> None:  # noqa: F811
    publish(shelf, cell, None)
    before = heads(shelf, cell)
    shelf.said.clear()
    publish(shelf, cell, signer)
    assert [line.split()[0] for line in shelf.said if line.startswith(("pushing", "signing"))] == [
        "signing",
        "signing",
    ]
    shelf.said.clear()
    publish(shelf, cell, signer)
    assert (shelf.said, heads(shelf, cell)) == ([], before)


@pytest.mark.usefixtures("images")
def test_a_base_that_nobody_trusted_has_signed_is_made_here(
    shelf: Shelf,
    cell: Plan,
    fetched: dict[str, str],
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],  # noqa: F811
    ours: PublicKey,
) -> None:
    publish(shelf, cell, None)
    take(shelf, cell, ours)
    publish(shelf, cell, signer)
    said = list(shelf.said)
    take(shelf, cell, PublicKey(str(public_keys[1])))
    assert fetched == {}
    for (line,) in ([line for line in said if "made here" in line], shelf.said):
        assert "so it is made here" in line
        assert "is signed by nobody who is trusted here" in line


def test_what_is_signed_under_another_name_is_no_base(
    shelf: Shelf,
    cell: Plan,
    images: dict[str, Image],
    fetched: dict[str, str],
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    """Whoever may push can set a tag to what we have signed for another one."""
    publish(shelf, cell, signer)
    serving, devel = named(cell)
    index = shelf.repository.manifest(bases.tag(serving))
    assert index
    shelf.repository.put_manifest(bases.tag(devel), index.raw, manifests.INDEX)
    take(shelf, cell, ours)
    assert fetched == {}
    (line,) = shelf.said
    assert f"what is signed is not {devel}" in line


def test_half_a_base_is_not_taken(
    shelf: Shelf,
    cell: Plan,
    images: dict[str, Image],
    fetched: dict[str, str],
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    take(shelf, cell, ours)
    nothing, name = list(shelf.said), cell.base.serving
    put(shelf, images[name], bases.tag(name), name)
    signer.sign(f"{shelf.repository.name}@{heads(shelf, cell)[name]}", print)
    take(shelf, cell, ours)
    assert fetched == {}
    assert shelf.said == nothing == [f"{shelf.repository.name} has no base {name}: making it"]


@pytest.mark.parametrize("of", ["another image", "another name"])
def test_another_image_under_the_tag_of_a_base_is_never_signed(
    shelf: Shelf,
    cell: Plan,
    images: dict[str, Image],
    signer: KeySigner,  # noqa: F811
    of: str,
) -> None:
    name = cell.base.serving
    if of == "another image":
        put(shelf, shelf.image(cell, "runtime", "strange"), bases.tag(name), name)
    else:
        put(shelf, images[name], bases.tag(name), cell.base.devel)
    with pytest.raises(PublishError, match="the registry has another image under"):
        publish(shelf, cell, signer)
    digest = heads(shelf, cell)[name]
    assert not signer.has_signed(f"{shelf.repository.name}@{digest}", print)


def test_a_base_from_a_registry_is_neither_published_nor_taken(
    shelf: Shelf, config: Config, fetched: dict[str, str], ours: PublicKey
) -> None:
    plan = test_attest.plans(config, "ngc")[0]
    publish(shelf, plan, None)
    take(shelf, plan, ours)
    assert (fetched, shelf.said, shelf.repository.tags()) == ({}, [], [])

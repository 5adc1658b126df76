"""Staged tags that wait for nothing any more, and passwords that must not get into a registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import PublishError
from ftbuild.plan import Plan
from ftbuild.publishing import garbage, remote_image, secrets
from ftbuild.publishing.names import Names
from ftbuild.registry.client import Descriptor, Manifest
from ftbuild.registry.malformed import Malformed
from tests.unit.publishing.test_publish import plan_of

REPOSITORY = "r.example/x"


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


# Passwords


@pytest.mark.parametrize(
    "text",
    [
        "https://user:pass@host/x",
        "http://:pass@host",
        "https://aTokenOfSixteen0@host",
        "hunter22-the-secret",
    ],
)
def test_a_password_anywhere_in_a_statement_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter22-the-secret")
    for statement in ({"a": [{"b": f"x {text} y"}]}, {text: 1}):
        with pytest.raises(PublishError, match="the attestations hold a password, so nothing is uploaded"):
            secrets.require_none(json.dumps(statement).encode(), "the attestations")


@pytest.mark.parametrize(
    "text",
    [
        "https://user:xxxxx@host/x",
        "https://***@host/x",
        "https://user:***@host/x",
        "https://short@host",
        "docker-image://a/b:tag@sha256:0123",
        "git+https://github.com/a/b@0123456789abcdef0123",
        "https://host/a:b@c",
    ],
)
def test_what_stands_for_a_password_is_none(text: str) -> None:
    secrets.require_none(json.dumps({"a": text, "b": [1, None, True]}).encode(), "x")


# Staged tags


@dataclass
class Repo:
    """A repository with tags, each with the time of its image; it deletes what it can."""

    name: str
    times: dict[str, str]
    deletes: tuple[bool, bool] = (True, True)
    deleted: list[str] = field(default_factory=list)

    def tags(self) -> list[str]:
        return list(self.times)

    def delete(self, reference: str) -> bool:
        self.deleted.append(reference)
        return self.deletes["sha256:" in reference]

    def head(self, tag: str) -> Descriptor | None:
        return Descriptor("a/b", f"sha256:{tag}", 1) if tag in self.times else None

    def config(self, image: Manifest) -> Any:
        return SimpleNamespace(labels={"org.opencontainers.image.created": self.times[str(image)]})


def an_image(repository: Repo, tag: str) -> Any:
    return SimpleNamespace(image=tag)


def found(
    monkeypatch: pytest.MonkeyPatch,
    plans: list[Plan],
    keep: int,
    *repositories: Repo,
    read: Callable[[Repo, str], Any] = an_image,
) -> list[Any]:
    by_name = {repository.name: repository for repository in repositories}
    monkeypatch.setattr(garbage, "Repository", lambda name, session: by_name[name])
    monkeypatch.setattr(remote_image, "read", read)
    names = Names(repositories[-1].name, repositories[0].name)
    return list(garbage.staged(names, plans, keep))


KEYS = {name: name * 12 for name in "abcd"}


def test_staged_tags_go_when_their_images_are_published_or_old(
    cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {
        f"22.12-sm86-{KEYS['a']}": "2026-01-01T00:00:00+00:00",
        f"22.12-sm86-{KEYS['b']}-sdk": "2026-01-03T00:00:00+00:00",
        f"22.12-sm86-{KEYS['c']}-unsmoked": "nonsense",
        f"22.12-sm80-{KEYS['a']}": "2020-01-01T00:00:00+00:00",
        f"22.12-sm86-{cell.key}": "2000-01-01T00:00:00+00:00",
        f"22.12-sm86-{KEYS['d']}": "2026-01-09T00:00:00+00:00",
        "22.12-sm86": "2026-01-01T00:00:00+00:00",
    }
    staged = Repo("r.example/staging", times)
    published = Repo(REPOSITORY, {f"22.12-sm86-{KEYS['d']}": "", "latest": ""})
    gone = found(monkeypatch, [cell], 1, staged, published)
    assert [(each.kind, each.name, each.size) for each in gone] == [
        ("staged tag", f"r.example/staging:22.12-sm86-{KEYS[key]}{suffix}", 0)
        for key, suffix in (("a", ""), ("c", "-unsmoked"), ("d", ""))
    ]
    assert [each.remove() for each in gone] == [None] * 3
    assert staged.deleted == [each.name.rpartition(":")[2] for each in gone]


@pytest.mark.parametrize("newest", "abc")
def test_of_old_images_the_newest_stays_whatever_its_tag_is(
    cell: Plan, monkeypatch: pytest.MonkeyPatch, newest: str
) -> None:
    times = {f"22.12-sm86-{KEYS[key]}": f"2026-01-0{1 + (key == newest)}T00:00:00+00:00" for key in "abc"}
    staged = Repo("r.example/staging", times)
    gone = {each.name[-1] for each in found(monkeypatch, [cell], 1, staged, Repo(REPOSITORY, {}))}
    assert gone == set("abc") - {newest}


@pytest.mark.parametrize("image", [None, Malformed("an index refers to an image that is none")])
def test_what_is_no_image_under_a_staged_tag_is_the_oldest(
    cell: Plan, monkeypatch: pytest.MonkeyPatch, image: Malformed | None
) -> None:
    """No build waits for what somebody else has put there."""
    odd, old = (f"22.12-sm86-{KEYS[name]}" for name in "ab")
    staged = Repo("r.example/staging", {odd: "", old: "1970-01-01T00:00:01+00:00"})

    def read(repository: Repo, tag: str) -> Any:
        if tag == odd and image:
            raise image
        return None if tag == odd else SimpleNamespace(image=tag)

    gone = found(monkeypatch, [cell], 1, staged, Repo(REPOSITORY, {}), read=read)
    assert [each.name for each in gone] == [f"r.example/staging:{odd}"]


def test_in_one_repository_only_marked_tags_are_staged(cell: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = f"22.12-sm86-{KEYS['a']}"
    both = Repo(REPOSITORY, {tag: "", f"staging-{tag}": "", f"staging-22.12-sm86-{KEYS['b']}": ""})
    (gone,) = found(monkeypatch, [cell], 5, both)
    assert gone.name == f"{REPOSITORY}:staging-{tag}"
    both.deletes = (False, True)
    assert gone.remove() == "the registry cannot delete a tag"
    assert both.deleted == [f"staging-{tag}"], "another tag may need the digest"


def test_where_tags_cannot_be_deleted_a_staged_image_goes_by_its_digest(
    cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = f"22.12-sm86-{KEYS['a']}"
    staged, published = Repo("r.example/staging", {tag: ""}, (False, True)), Repo(REPOSITORY, {tag: ""})
    (gone,) = found(monkeypatch, [cell], 5, staged, published)
    assert gone.remove() is None
    assert staged.deleted == [tag, f"sha256:{tag}"]
    staged.deletes = (False, False)
    assert gone.remove() == "the registry cannot delete a tag"
    del staged.times[tag]
    assert gone.remove() is None, "gone with another tag of the same image"

    def refuse(reference: str) -> bool:
        raise PublishError("r.example refused")

    staged.delete = refuse  # type: ignore[method-assign]
    assert gone.remove() == "r.example refused"


def test_of_the_bases_for_builders_only_old_ones_go(cell: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = cell.base.serving.rpartition(":")[0]
    here = replace(cell, base=replace(cell.base, serving=f"{serving}:{KEYS['a']}"))
    names = [f"base-open-{KEYS[key]}{role}" for key in "ab" for role in ("", "-devel")]
    staged = Repo("r.example/staging", dict.fromkeys(names, ""))
    gone = found(monkeypatch, [here], 0, staged, Repo(REPOSITORY, {}))
    assert [each.name.rpartition(":")[2] for each in gone] == names[2:]

"""The audit against real git repositories and a real registry that the tests make."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from ftbuild.audit import bases, job
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.text.results import CheckResult
from testing import ROOT, registries
from testing.sample import SAMPLE

from . import test_sources as made

World = made.World
git_config = made.git_config
world = made.world

MANIFEST = "application/vnd.oci.image.index.v1+json"


@pytest.fixture
def pinned(world: World) -> World:
    """A configuration with a backport whose pins are locked and in the cache; the registry is left out."""
    fix = world.ft.commit(src__a="fixed\n", new="file\n")
    world.backport(fix)
    world.ft.git("reset", "--quiet", "--hard", "v1")
    world.ft.git("branch", "fixes", fix)
    world.lock()
    world.fetch()
    return world


def audit(world: World) -> dict[str, CheckResult]:
    """Findings by what they are about. The base's registry does not exist: that one is left out."""
    findings = job.audit(world.config, world.cache, report=made.quiet)
    return {finding.check: finding for finding in findings if not finding.check.startswith("base")}


def states(found: dict[str, CheckResult]) -> dict[str, str]:
    return {what: finding.state for what, finding in found.items() if finding.state != "ok"}


def forget(upstream: made.Upstream) -> None:
    """Remove what no ref leads to, as a hoster does sooner or later."""
    upstream.git("reflog", "expire", "--expire=now", "--all")
    upstream.git("gc", "--quiet", "--prune=now")


NO_MIRRORS = {"source ft: mirrors": "warn", "source cutlass: mirrors": "warn"}


def test_sources_as_they_were_locked_are_fine_but_for_mirrors(pinned: World) -> None:
    found = audit(pinned)
    assert states(found) == NO_MIRRORS
    assert found["patches 22.12"].detail == "applies: 1"
    assert job.exit_code(found.values()) == 0


def test_the_sample_stack_is_fine_but_for_mirrors_and_updates(
    tmp_path: Path, sample_repositories: None
) -> None:
    findings = job.audit(loader.load(SAMPLE), tmp_path / "cache", report=made.quiet)
    odd = {finding.check: finding.state for finding in findings if finding.state != "ok"}
    assert set(odd.values()) == {"warn"}
    assert all(what.endswith(": mirrors") or what.startswith("debian ") for what in odd)


def test_the_question_goes_to_upstream_and_not_to_the_cache(pinned: World) -> None:
    pinned.vanish()
    found = audit(pinned)
    assert states(found)["source ft: commits"] == "fail"
    assert "cache here still holds it all" in found["source ft: commits"].detail
    assert found["patches 22.12"].state == "ok"
    assert job.exit_code(found.values()) == 5


def test_a_vanished_upstream_with_a_mirror_is_a_warning(pinned: World) -> None:
    mirror = pinned.root / "mirror"
    shutil.copytree(pinned.ft.folder, mirror)
    pinned.configure(mirrors=(mirror.as_uri(),))
    pinned.ft.folder.rename(pinned.root / "gone")
    found = audit(pinned)
    assert states(found) == {
        f"source ft: {pinned.ft.folder.as_uri()}": "warn",
        "source cutlass: mirrors": "warn",
    }
    assert job.exit_code(found.values()) == 0


def test_a_branch_that_went_on_is_a_warning_that_names_both_commits(pinned: World) -> None:
    old = pinned.config.lock.sources["22.12"]["cutlass"].commit
    new = pinned.cutlass.commit(include__c="changed\n")
    found = audit(pinned)
    assert states(found) == {**NO_MIRRORS, "source cutlass: refs/heads/main": "warn"}
    assert new[:12] in found["source cutlass: refs/heads/main"].detail
    assert old[:12] in found["source cutlass: refs/heads/main"].detail


def test_a_commit_that_was_pushed_away_by_force_fails(pinned: World) -> None:
    pinned.ft.git("branch", "--delete", "--force", "fixes")
    forget(pinned.ft)
    found = audit(pinned)
    assert states(found)[f"source ft: {pinned.ft.folder.as_uri()}"] == "warn"
    assert "(0001-fix.backport)" in found["source ft: commits"].detail
    assert "(22.12)" not in found["source ft: commits"].detail
    assert job.exit_code(found.values()) == 5


def test_what_neither_upstream_nor_the_cache_has_keeps_the_series_from_being_tried(pinned: World) -> None:
    pinned.ft.git("branch", "--delete", "--force", "fixes")
    forget(pinned.ft)
    shutil.rmtree(pinned.cache)
    found = audit(pinned)
    assert "the cache lacks" in found["source ft: commits"].detail
    assert found["sources of 22.12"].state == "fail"
    assert job.exit_code(found.values()) == 5


def test_a_server_that_serves_no_ids_is_asked_for_its_history(pinned: World, git_config: Path) -> None:
    with git_config.open("a") as file:  # version 0 refuses every commit that is not the tip of a ref
        file.write("[protocol]\n version = 0\n")
    pinned.ft.git("checkout", "--quiet", "fixes")
    pinned.ft.commit(later="file\n")
    assert states(audit(pinned)) == NO_MIRRORS
    pinned.ft.git("tag", "release", "fixes~1")
    pinned.ft.git("checkout", "--quiet", "v1")
    pinned.ft.git("branch", "--delete", "--force", "fixes")
    assert states(audit(pinned)) == NO_MIRRORS
    pinned.ft.git("tag", "--delete", "release")
    forget(pinned.ft)
    assert "(0001-fix.backport)" in audit(pinned)["source ft: commits"].detail


def test_an_entry_that_upstream_took_in_fails_with_the_code_of_patches(pinned: World) -> None:
    pinned.configure(ref="refs/heads/fixes")
    pinned.lock()
    found = audit(pinned)
    assert states(found)["patches 22.12: ft/0001-fix.backport"] == "fail"
    assert job.exit_code(found.values()) == 6


def test_nothing_is_left_behind(pinned: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    audit(pinned)
    assert list(scratch.iterdir()) == []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    with registries.plain(tmp_path / "registry") as registry:
        yield registry.host


def push(host: str, tag: str, note: str) -> str:
    """Put an empty image index under a tag; its digest."""
    body = f'{{"schemaVersion":2,"mediaType":"{MANIFEST}","manifests":[],"annotations":{{"note":"{note}"}}}}'
    url = f"http://{host}/v2/base/server/manifests/{tag}"
    answer = requests.put(url, data=body, headers={"Content-Type": MANIFEST}, timeout=60)
    assert answer.status_code == 201, answer.text
    return answer.headers["Docker-Content-Digest"]


def base_finding(host: str, digest: str | None) -> CheckResult:
    config: Config = loader.load(ROOT / "buildcfg")
    ngc = config.bases.bases["ngc"].model_copy(
        update={"image": f"{host}/base/server:{{release}}-py3", "releases": ("22.12",)}
    )
    locked = {"ngc": {"22.12": digest}} if digest else {}
    config = replace(
        config,
        bases=config.bases.model_copy(update={"bases": {"ngc": ngc}}),
        lock=config.lock.model_copy(update={"bases": locked}),
    )
    (finding,) = bases.ask(config)()
    return finding


def test_a_base_is_compared_with_its_locked_digest(host: str) -> None:
    old = push(host, "22.12-py3", "old")
    assert base_finding(host, old).state == "ok"
    assert base_finding(host, None).state == "warn"
    new = push(host, "22.12-py3", "new")
    moved = base_finding(host, old)
    assert moved.state == "warn"
    assert old in moved.detail
    assert new in moved.detail


def test_a_base_whose_tag_is_gone_fails_only_when_its_digest_is_gone_too(host: str) -> None:
    kept = push(host, "other", "kept")
    gone = base_finding(host, kept)
    assert gone.state == "warn"
    assert "still available" in gone.detail
    assert base_finding(host, f"sha256:{'0' * 64}").state == "fail"
    assert base_finding(host, None).state == "fail"

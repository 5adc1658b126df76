"""What the audit makes of answers, without asking anybody."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from ftbuild import registry
from ftbuild.audit import bases, contents, debian, job, pins, series
from ftbuild.audit.remote import Answer
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.errors import PinError
from ftbuild.sources import patched
from ftbuild.sources.debian import pinned
from ftbuild.sources.objects import Snapshot
from ftbuild.sources.patches.series import PatchStatus, Status
from ftbuild.sources.store import Store
from ftbuild.text.results import CheckResult, State
from tests.unit.test_plan import plan_of

OLD, NEW = "a" * 40, "b" * 40
REF = "refs/heads/r22.12"
PINNED = (pins.Pin(Snapshot(OLD, (), REF), ("22.12",)), pins.Pin(Snapshot(NEW, (), NEW), ("22.07",)))
URL, MIRROR = "https://example.invalid/ft.git", "https://mirror.example.invalid/ft.git"
ALL = Answer(URL, "", {REF: OLD}, frozenset((OLD, NEW)))


def judged(folder: Path, *answers: Answer) -> dict[str, CheckResult]:
    store = Store(folder, "ft", [answer.url for answer in answers])
    return {finding.check: finding for finding in pins.judge("ft", PINNED, answers, store)}


def test_an_upstream_that_has_everything_is_fine(tmp_path: Path) -> None:
    found = judged(tmp_path, ALL)
    assert {finding.state for finding in found.values()} == {"ok"}


@pytest.mark.parametrize(
    ("days", "state"), [(0, State.OK), (debian.OLD_DAYS - 1, State.OK), (debian.OLD_DAYS, State.WARN)]
)
def test_a_lock_is_old_after_ninety_days(config: Config, days: int, state: State) -> None:
    locked = pinned.locked(config, "open")
    found = debian.age("open", locked, locked.time + timedelta(days=days))
    assert found.state is state
    assert (debian.UPGRADE in found.detail) is (state is State.WARN)


def test_the_lock_lacks_what_the_archive_has_in_a_later_version_by_debians_order(config: Config) -> None:
    one, other, third, *_ = pinned.locked(config, "open").every()
    offered = {one.name: f"99:{one.version}", other.name: other.version, third.name: f"{third.version}~1"}
    assert debian.lacking(pinned.locked(config, "open"), offered) == {
        one.name: (one.version, offered[one.name])
    }


def test_updates_that_wait_are_named_and_many_are_counted() -> None:
    assert debian.updates("open", {}) == CheckResult(
        "debian open: security updates", State.OK, "the lock has them all"
    )
    many = {f"p{number:02d}": ("1", "2") for number in range(debian._SHOWN + 3)}
    all_shown = dict(sorted(many.items())[: debian._SHOWN])
    assert " more" not in debian.updates("open", all_shown).detail
    few = debian.updates("open", {"b": ("1", "2"), "a": ("3", "4")})
    assert few.detail == f"the lock lacks 2: a 3 -> 4, b 1 -> 2; {debian.UPGRADE}"
    found = debian.updates("open", many)
    assert found.state is State.WARN
    assert found.detail.startswith(f"the lock lacks {len(many)}: p00 1 -> 2, p01")
    assert found.detail.endswith(f"p{debian._SHOWN - 1:02d} 1 -> 2 and 3 more; {debian.UPGRADE}")


def test_a_silent_upstream_is_a_warning_while_a_mirror_has_everything(tmp_path: Path) -> None:
    found = judged(tmp_path, Answer(URL, "fatal: not found"), replace(ALL, url=MIRROR))
    assert found[f"source ft: {URL}"] == CheckResult(
        f"source ft: {URL}", State.WARN, "does not answer: fatal: not found"
    )
    assert found[f"source ft: {MIRROR}"].state == "ok"
    assert found["source ft: commits"].state == "ok"


def test_two_urls_that_complete_each_other_lose_nothing(tmp_path: Path) -> None:
    half = replace(ALL, commits=frozenset((OLD,)))
    found = judged(tmp_path, half, replace(ALL, url=MIRROR, commits=frozenset((NEW,))))
    assert found["source ft: commits"].state == "ok"
    assert f"lacks {NEW[:12]} (22.07)" in found[f"source ft: {URL}"].detail


def test_a_commit_that_nobody_has_fails_and_names_who_needs_it(tmp_path: Path) -> None:
    lost = judged(tmp_path, replace(ALL, commits=frozenset((NEW,))))["source ft: commits"]
    assert lost.state == "fail"
    assert f"no URL has {OLD[:12]} (22.12)" in lost.detail
    assert "the cache lacks" in lost.detail


@pytest.mark.parametrize(
    ("refs", "says"), [({REF: NEW}, f"points to {NEW[:12]} now"), ({}, "is gone")], ids=["moved", "gone"]
)
def test_a_ref_that_moved_or_went_is_a_warning(tmp_path: Path, refs: dict[str, str], says: str) -> None:
    found = judged(tmp_path, replace(ALL, refs=refs))[f"source ft: {REF}"]
    assert found.state == "warn"
    assert says in found.detail
    assert OLD[:12] in found.detail


def test_the_refs_of_a_mirror_count_only_where_upstream_is_silent(tmp_path: Path) -> None:
    stale = replace(ALL, url=MIRROR, refs={REF: NEW})
    assert f"source ft: {REF}" not in judged(tmp_path, ALL, stale)
    assert f"source ft: {REF}" in judged(tmp_path, Answer(URL, "silent"), stale)


def test_every_commit_of_the_lock_is_asked_for_once(config: Config) -> None:
    asked = {pin.commit for name in config.sources.repositories for pin in pins.pins(config, name)}
    locked = {source.commit for named in config.lock.sources.values() for source in named.values()}
    assert asked == locked | {commit for named in config.lock.backports.values() for commit in named}
    (cutlass,) = pins.pins(config, "cutlass")
    assert cutlass.users == ("22.07", "22.12", "24.10", "26.06")


def test_a_lock_without_a_pin_is_an_error_of_its_own(config: Config) -> None:
    config = replace(config, lock=config.lock.model_copy(update={"sources": {}}))
    with pytest.raises(PinError, match="is not in the lock"):
        pins.pins(config, "ft")


@pytest.mark.parametrize(("mirrors", "state"), [((MIRROR,), "ok"), ((), "warn")])
def test_a_source_without_a_mirror_is_a_warning(mirrors: tuple[str, ...], state: str) -> None:
    assert pins.mirrors("ft", mirrors).state == state


def test_a_registry_that_cannot_be_asked_is_a_warning_that_says_so(config: Config) -> None:
    ngc = config.bases.bases["ngc"].model_copy(update={"image": "127.0.0.1:9/nothing:{release}"})
    config = replace(config, bases=config.bases.model_copy(update={"bases": {"ngc": ngc}}))
    found = list(bases.ask(config)())
    assert [(f.check, f.state) for f in found] == [
        (f"base ngc {release}", "warn") for release in ngc.releases
    ]
    assert "cannot be looked up" in found[0].detail


def test_an_entry_that_stops_a_build_is_a_failure_and_the_rest_is_counted() -> None:
    row = PatchStatus("ft", "0040-sm-89.patch", "22.12", "5.3", Status.APPLIES)
    (fine,) = series.judge("22.12", [row, replace(row, file="0050-x.patch")])
    assert (fine.state, fine.detail) == ("ok", "applies: 2")
    stopping = replace(row, status=Status.UPSTREAM, stops=True, detail="narrow its range in patches.yaml")
    (bad,) = series.judge("22.12", [row, stopping])
    assert bad.check == "patches 22.12: ft/0040-sm-89.patch"
    assert (bad.state, bad.detail) == ("fail", "already upstream: narrow its range in patches.yaml")


@pytest.mark.parametrize(
    ("failed", "code"),
    [((), 0), (("source ft: commits",), 5), (("base ngc 22.12",), 5), (("patches 22.12: ft/a.patch",), 6)],
)
def test_warnings_never_fail_and_failures_have_the_code_of_their_kind(
    failed: tuple[str, ...], code: int
) -> None:
    findings = [
        CheckResult("source ft: mirrors", State.WARN),
        *(CheckResult(what, State.FAIL) for what in failed),
    ]
    assert job.exit_code(findings) == code


def test_the_table_ends_with_the_worst_and_the_counts() -> None:
    findings = [
        CheckResult("a", State.OK, "fine"),
        CheckResult("b", State.WARN, "hm"),
        CheckResult("c", State.FAIL, "[lost]"),
    ]
    lines = job.render(findings, "human").splitlines()
    assert [line.split()[0] for line in lines if line.endswith(("fine", "hm", "[lost]"))] == [
        "ok",
        "warn",
        "fail",
    ]
    assert lines[-1] == "failed: 1, warnings: 1"
    assert json.loads(job.render(findings, "json"))[0] == {"what": "a", "state": "ok", "detail": "fine"}


LOCKED, MOVED = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
TAG = "registry.example.com/base:22.12"


@pytest.mark.parametrize(
    ("locked", "there", "state", "says"),
    [
        (LOCKED, {TAG: LOCKED}, State.OK, f"{TAG} is {LOCKED}"),
        (
            LOCKED,
            {TAG: MOVED},
            State.WARN,
            f"{TAG} is {MOVED} now, the lock has {LOCKED}; invoke lock pins the new one",
        ),
        ("", {TAG: MOVED}, State.WARN, f"the lock has no digest: {TAG} is {MOVED} now; invoke lock"),
        (
            LOCKED,
            {f"registry.example.com/base:{LOCKED}": LOCKED},
            State.WARN,
            f"{TAG} is gone, {LOCKED} still available",
        ),
        (LOCKED, {}, State.FAIL, f"the registry has neither {TAG} nor {LOCKED}"),
        ("", {}, State.FAIL, f"the registry has no {TAG}, and the lock no digest"),
    ],
)
def test_a_base_is_compared_with_its_registry(
    locked: str, there: dict[str, str], state: State, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "current", there.get)
    found = bases._look(bases.Pinned("base ngc 22.12", TAG, locked))
    assert (found.check, found.state) == ("base ngc 22.12", state)
    assert found.detail.startswith(says)


def test_an_audit_has_the_findings_of_all_its_parts(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources, bases and packages are asked for while the series are tried; nothing stays on the disk."""
    folders: list[Path] = []

    def found(name: str) -> Iterator[CheckResult]:
        yield CheckResult(name, State.OK)

    def ask(
        config: Config, cache: Path, scratch: Path, report: object
    ) -> Callable[[], Iterator[CheckResult]]:
        folders.append(scratch)
        (scratch / "left").write_text("something")
        return partial(found, "source")

    monkeypatch.setattr(pins, "ask", ask)
    monkeypatch.setattr(bases, "ask", lambda config: partial(found, "base"))
    monkeypatch.setattr(debian, "ask", lambda config, report: partial(found, "debian"))
    monkeypatch.setattr(series, "check", lambda config, cache, report: found("patches"))
    results = job.audit(config, tmp_path, report=print)
    assert [result.check for result in results] == ["source", "base", "debian", "patches"]
    assert [folder.name.startswith("ftbuild-audit-") for folder in folders] == [True]
    assert not folders[0].exists()


def test_a_registry_that_never_answers_is_a_warning_after_a_while(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(network, "start", lambda asked: dict.fromkeys(asked, Future()))
    monkeypatch.setattr(debian, "_PATIENCE_SECONDS", 0.01)
    registries, archives = list(bases.ask(config)()), list(debian.ask(config, print)())
    assert len(registries) == len(list(bases.pins(config)))
    assert [each.check for each in archives] == [
        f"debian {name}: security updates" for name in pinned.requested(config)
    ]
    told = {(each.state, each.detail) for each in (*registries, *archives)}
    assert told == {(State.WARN, "no answer within 0.01 s")}


@pytest.mark.parametrize(("lost", "more"), [(4, ""), (5, " and 1 more")])
def test_of_many_lost_commits_four_are_named(tmp_path: Path, lost: int, more: str) -> None:
    pinned_ = [pins.Pin(Snapshot(f"{n}" * 40, (), None), (f"22.0{n}",)) for n in range(lost)]
    store = Store(tmp_path, "ft", [URL])
    found = {
        each.check: each for each in pins.judge("ft", pinned_, [replace(ALL, commits=frozenset())], store)
    }
    named = ", ".join(f"{str(n) * 12} (22.0{n})" for n in range(4))
    assert found[f"source ft: {URL}"].detail == f"lacks {named}{more}"


def test_a_release_without_sources_does_not_hide_the_others(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def survey(config: Config, releases: Sequence[str], cache: Path, report: object) -> list[PatchStatus]:
        (release,) = releases
        if release == "22.03":
            raise PinError("the cache lacks a commit")
        return []

    monkeypatch.setattr(patched, "survey", survey)
    first, *others = series.check(config, tmp_path, print)
    assert (first.check, first.state) == ("sources of 22.03", State.FAIL)
    assert first.detail == "the series cannot be tried: the cache lacks a commit"
    assert [(each.check, each.detail) for each in others] == [
        (f"patches {release}", "none") for release in config.sources.releases if release != "22.03"
    ]


@pytest.mark.parametrize(
    ("suite", "release"),
    [("bullseye", "11"), ("bookworm", "12"), ("trixie", "13"), ("forky", "14"), ("duke", "duke")],
)
def test_packages_of_a_plan_are_compared_with_those_of_its_release_of_debian(
    config: Config, suite: str, release: str
) -> None:
    plan = plan_of(config)
    assert plan.base.debian is not None
    requested = plan.base.debian.requested.model_copy(update={"suite": suite})
    debian_ = plan.base.debian.model_copy(update={"requested": requested})
    base = replace(plan.base, debian=debian_)
    found = contents.of_plan(replace(plan, base=base), "runtime")
    assert {each.ecosystem for each in found.components} == {"", "PyPI", f"Debian:{release}"}
    (server,) = (each for each in found.components if each.name == "triton-inference-server/server")
    assert server.version == f"v{plan.server}"


@pytest.mark.parametrize("product", ["runtime", "sdk"])
def test_wheels_of_a_plan_are_those_that_the_image_gets(config: Config, product: str) -> None:
    plan = plan_of(config)
    roles = {"server", "runtime", product}
    wheels = {canonicalize_name(wheel.name) for wheel in plan.wheels if wheel.role in roles}
    found = {each.name for each in contents.of_plan(plan, product).components if each.ecosystem == "PyPI"}
    assert found == wheels
    assert {wheel.role for wheel in plan.wheels} > roles - {"sdk"}

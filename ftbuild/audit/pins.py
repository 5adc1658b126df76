"""Pinned commits, compared with what each URL of their repository serves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ftbuild.audit import remote
from ftbuild.audit.remote import Answer
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.host.redaction import redact
from ftbuild.sources import lock, repositories
from ftbuild.sources.objects import Change, Pinned, is_commit
from ftbuild.sources.patches import series
from ftbuild.sources.store import Store
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult, State

SUBJECT = "source"


@dataclass(frozen=True)
class Pin:
    """A commit that builds need, and its users: releases, or the entry of a series."""

    wanted: Pinned
    users: tuple[str, ...]

    @property
    def commit(self) -> str:
        """Its full id."""
        return self.wanted.commit

    @property
    def ref(self) -> str | None:
        """The ref that it was locked from; None where none is named."""
        return None if self.wanted.ref is None or is_commit(self.wanted.ref) else self.wanted.ref

    def __str__(self) -> str:
        return f"{self.commit[:12]} ({', '.join(self.users)})"


def pins(config: Config, repository: str) -> tuple[Pin, ...]:
    """Return every commit of a repository that the lock pins; PinError where it lacks a pin."""
    users: dict[Pinned, list[str]] = {}
    for release, named in config.sources.releases.items():
        if repository in named:
            locked = lock.pinned(config, release, repository)
            snapshot = repositories.snapshot_of(config, repository, locked.commit, locked.ref)
            users.setdefault(snapshot, []).append(release)
    for entry in series.read_series(config).get(repository, ()):
        if entry.commit:
            lock.pinned_backport(config, entry)
            users.setdefault(Change(entry.commit), []).append(entry.file)
    return tuple(Pin(wanted, tuple(names)) for wanted, names in users.items())


def ask(config: Config, cache: Path, scratch: Path, report: Reporter) -> Callable[[], Iterator[CheckResult]]:
    """Start asking every URL of every repository; the returned function waits for the answers.

    Each wait ends: git is given `remote.LISTING_SECONDS` and `remote.FETCH_SECONDS` for each call.
    """
    pinned = {name: pins(config, name) for name in config.sources.repositories}
    stores = {name: repositories.store_of(config, name, cache) for name in pinned}
    running = {
        name: _start(stores[name], found, scratch / name, report) for name, found in pinned.items() if found
    }

    def collect() -> Iterator[CheckResult]:
        for name, futures in running.items():
            answers = [future.result() for future in futures]
            yield from judge(name, pinned[name], answers, stores[name])
            yield mirrors(name, config.sources.repositories[name].mirrors)

    return collect


def judge(name: str, pinned: Sequence[Pin], answers: Sequence[Answer], store: Store) -> Iterator[CheckResult]:
    """Yield a result for each URL, one for the commits that no URL has, and one for each ref that moved."""
    for answer in answers:
        yield _address(name, pinned, answer)
    anywhere = frozenset[str]().union(*(answer.commits for answer in answers))
    lost = [pin for pin in pinned if pin.commit not in anywhere]
    if lost:
        yield CheckResult(f"{SUBJECT} {name}: commits", State.FAIL, _loss(lost, store))
    else:
        yield CheckResult(
            f"{SUBJECT} {name}: commits", State.OK, f"pinned: {len(_ids(pinned))}, all can be fetched"
        )
    answered = next((answer for answer in answers if not answer.problem), None)
    if answered:
        yield from _moved(name, pinned, answered.refs)


def mirrors(name: str, urls: Sequence[str]) -> CheckResult:
    """Return whether a source would outlive its upstream."""
    if urls:
        return CheckResult(f"{SUBJECT} {name}: mirrors", State.OK, f"configured: {len(urls)}")
    advice = "none: add one to sources.yaml, or keep a file of invoke bundle, before upstream vanishes"
    return CheckResult(f"{SUBJECT} {name}: mirrors", State.WARN, advice)


def _start(store: Store, pinned: Collection[Pin], scratch: Path, report: Reporter) -> list[Future[Answer]]:
    refs = sorted({pin.ref for pin in pinned if pin.ref})
    commits = _ids(pinned)
    report(f"{store.name}: asking {', '.join(map(redact, store.urls))} (pinned commits: {len(commits)})")
    tasks = {
        str(number): partial(remote.ask, url, refs, commits, scratch / str(number))
        for number, url in enumerate(store.urls)
    }
    return list(network.start(tasks).values())


def _address(name: str, pinned: Sequence[Pin], answer: Answer) -> CheckResult:
    what = f"{SUBJECT} {name}: {answer.url}"
    if answer.problem:
        return CheckResult(what, State.WARN, f"does not answer: {answer.problem}")
    if lacking := [pin for pin in pinned if pin.commit not in answer.commits]:
        return CheckResult(what, State.WARN, f"lacks {_listed(lacking)}")
    return CheckResult(what, State.OK, f"pinned commits available: {len(answer.commits)}")


def _loss(lost: Sequence[Pin], store: Store) -> str:
    """Return which commits no URL has, and whether this machine's cache still has them."""
    kept = [pin for pin in lost if store.holds(pin.wanted)]
    lines = [f"no URL has {_listed(lost)}"]
    if kept:
        whole = "it all" if len(kept) == len(lost) else _listed(kept)
        lines.append(f"the cache here still holds {whole}: save it now with invoke bundle, and add a mirror")
    if len(kept) < len(lost):
        lines.append("what the cache lacks is only in older files of invoke bundle: invoke build --sources")
    return "\n".join(lines)


def _moved(name: str, pinned: Sequence[Pin], refs: Mapping[str, str]) -> Iterator[CheckResult]:
    for pin in pinned:
        now = refs.get(pin.ref or "")
        if pin.ref is None or now == pin.commit:
            continue
        detail = f"points to {now[:12]} now" if now else "is gone"
        yield CheckResult(
            f"{SUBJECT} {name}: {pin.ref}", State.WARN, f"{detail}; the lock has {pin}: invoke lock --check"
        )


def _listed(found: Sequence[Pin], most: int = 4) -> str:
    rest = len(found) - most
    return ", ".join(map(str, found[:most])) + (f" and {rest} more" if rest > 0 else "")


def _ids(pinned: Collection[Pin]) -> frozenset[str]:
    return frozenset(pin.commit for pin in pinned)

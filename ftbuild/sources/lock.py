"""The lock: refs of sources.yaml and backports of the series, resolved to commits, trees and diffs.

A commit id fixes the whole content; the tree id beside it exposes a lock that was edited by hand or merged
wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from ftbuild.config.schema import Config, Lock, LockedBackport, LockedSource
from ftbuild.errors import PinError
from ftbuild.host import disk
from ftbuild.host.files import write_atomic
from ftbuild.sources.objects import is_commit
from ftbuild.sources.patches.series import Entry
from ftbuild.sources.repositories import (
    backports,
    chosen_releases,
    read_backport,
    snapshot_of,
    store_of,
)
from ftbuild.text.reporter import Reporter

_HEADER = """\
# Written by `invoke lock` from sources.yaml and the backports of the patch series. Do not edit: every build
# verifies commits, trees and diffs against this file, and `invoke lock --check` compares it with upstream.
"""
RELOCK = "invoke lock"


def pinned(config: Config, release: str, repository: str) -> LockedSource:
    """Return the pin of a source; PinError when the lock lacks it or was made for another ref."""
    locked = config.lock.sources.get(release, {}).get(repository)
    ref = config.sources.releases[release][repository].ref
    if locked is None:
        raise _unlocked(config, f"{repository} of release {release} is not in the lock")
    if locked.ref != ref:
        raise _unlocked(
            config, f"{repository} of release {release} is locked for {locked.ref}, sources.yaml has {ref}"
        )
    return locked


def pinned_backport(config: Config, entry: Entry) -> LockedBackport:
    """Return the pin of a backported commit; PinError when the lock lacks it."""
    locked = config.lock.backports.get(entry.component, {}).get(entry.commit or "")
    if locked is None:
        raise _unlocked(config, f"commit {entry.commit} of {entry.name} is not in the lock")
    return locked


def write_lock(
    config: Config,
    cache: Path,
    *,
    bases: Mapping[str, Mapping[str, str]] | None = None,
    releases: Collection[str] = (),
    report: Reporter = print,
) -> Lock:
    """Resolve the refs of `releases` (none named: all) and every backport, and write the lock.

    `bases` are the digests of bases to write (None: those in the lock). Pins of other releases stay. Raises
    PinError when a repository does not answer or lacks a ref or commit.
    """
    with disk.report_full(cache):
        made = _resolve(config, cache, releases, report).model_copy(
            update={"bases": config.lock.bases if bases is None else bases}
        )
        _write(config, made)
    return made


def write_objects(config: Config, objects: Mapping[str, str]) -> None:
    """Write names and digests of objects, by cell id, into the lock; its other pins stay."""
    _write(config, config.lock.model_copy(update={"objects": {**config.lock.objects, **objects}}))


def _write(config: Config, made: Lock) -> None:
    text = _HEADER + yaml.safe_dump(made.model_dump(mode="json"), sort_keys=True, width=110)
    write_atomic(config.lock_file, text)


def check_lock(config: Config, cache: Path, *, report: Reporter = print) -> None:
    """Raise PinError with every difference between the lock and what locking again would write."""
    with disk.report_full(cache):
        wanted = _flat(_resolve(config, cache, (), report))
    written = _flat(config.lock)
    drift = [
        f"{key}: the lock has {written.get(key, 'nothing')}, upstream {wanted.get(key, 'nothing')}"
        for key in sorted(wanted.keys() | written.keys())
        if wanted.get(key) != written.get(key)
    ]
    if drift:
        raise PinError(
            "\n    ".join(["the lock does not match sources.yaml, the series and upstream", *drift]),
            where=str(config.lock_file),
            hint=f"{RELOCK}, and read the difference before you commit it",
        )


def _resolve(config: Config, cache: Path, releases: Collection[str], report: Reporter) -> Lock:
    selected = chosen_releases(config, releases)
    commits = {name: _commits(config, name, selected, cache, report) for name in config.sources.repositories}
    sources = {r: dict(s) for r, s in config.lock.sources.items() if r in config.sources.releases}
    for release in selected:
        sources[release] = {}
        for name, source in config.sources.releases[release].items():
            store = store_of(config, name, cache)
            snapshot = snapshot_of(config, name, commits[name][source.ref], source.ref)
            store.obtain([snapshot], report)
            sources[release][name] = LockedSource(
                ref=source.ref, commit=snapshot.commit, tree=store.tree(snapshot.commit)
            )
    found: dict[str, dict[str, LockedBackport]] = {}
    for entry in backports(config):
        store, commit = store_of(config, entry.component, cache), entry.commit or ""
        found.setdefault(entry.component, {})[commit] = read_backport(store, commit, report)
    return Lock(sources=sources, backports=found, bases=config.lock.bases, objects=config.lock.objects)


def _commits(
    config: Config, name: str, releases: Iterable[str], cache: Path, report: Reporter
) -> dict[str, str]:
    """Return ref -> commit of one repository; a ref that is a commit id is itself."""
    sources = (config.sources.releases[release].get(name) for release in releases)
    refs = sorted({source.ref for source in sources if source})
    named = [ref for ref in refs if not is_commit(ref)]
    if named:
        report(f"{name}: resolving {', '.join(named)}")
    found = store_of(config, name, cache).resolve(named) if named else {}
    return {**{ref: ref for ref in refs}, **found}


def _flat(lock: Lock) -> dict[str, str]:
    """Return every value that locking decides, by its place."""

    def walk(place: str, value: object) -> Iterator[tuple[str, str]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from walk(f"{place} {key}".strip(), inner)
        else:
            yield place, str(value)

    return dict(walk("", lock.model_dump(mode="json", exclude={"bases", "objects"})))


def _unlocked(config: Config, what: str) -> PinError:
    return PinError(what, where=str(config.lock_file), hint=RELOCK)

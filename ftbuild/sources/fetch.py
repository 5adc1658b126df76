"""Pinned sources from the shared cache: fetched when missing, verified against the lock, written out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, PatchError, PinError
from ftbuild.host import disk, shell
from ftbuild.sm import Sm
from ftbuild.sources.lock import RELOCK, pinned, pinned_backport
from ftbuild.sources.objects import Change, Pinned, Snapshot
from ftbuild.sources.patches.series import Entry
from ftbuild.sources.repositories import backports, read_backport, read_diff, snapshot_of, store_of
from ftbuild.sources.store import Store
from ftbuild.text.reporter import Reporter

T = TypeVar("T")

# Enough for the servers of all repositories; what reads the cache is held up by processors before.
_THREADS = 16


def fetch_release(
    config: Config, release: str, cache: Path, *, sms: Collection[Sm] = (), report: Reporter = print
) -> None:
    """Bring everything that builds of `release` for `sms` (none: any) read into the cache, and verify it.

    Needs no network when the cache has it all. Raises PinError naming repository and URLs when a source
    cannot be had, and both ids where one differs from the lock.
    """
    with disk.report_full(cache):
        _fetch_beside(config, release, cache, sms, report)
        for repository in config.sources.built(release):
            _require_tree(config, release, repository, store_of(config, repository, cache))
        entry_diffs(config, list(backports(config, [release])), cache, report=report)


def _fetch_beside(config: Config, release: str, cache: Path, sms: Collection[Sm], report: Reporter) -> None:
    """Fetch what is missing, the repositories side by side: each server is waited for most of the time."""
    wanted = {
        name: list(wanted_objects(config, name, [release], sms)) for name in config.sources.repositories
    }
    _beside(
        [partial(store_of(config, name, cache).obtain, some, report) for name, some in wanted.items() if some]
    )


def _beside(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the calls return, made side by side. After a failure no other starts; Ctrl-C ends all."""
    with ThreadPoolExecutor(max(1, min(len(calls), _THREADS))) as pool:
        try:
            running = [pool.submit(call) for call in calls]
            return [done.result() for done in running]
        except BaseException as ended:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(ended, KeyboardInterrupt):
                shell.interrupt()
            raise


def export(
    config: Config,
    release: str,
    repository: str,
    cache: Path,
    destination: Path,
    *,
    sms: Collection[Sm] = (),
    report: Reporter = print,
) -> None:
    """Write a source's verified tree, as far as builds for `sms` (none: any) read it, into `destination`.

    Raises ConfigError when files of another source are there.
    """
    if destination.is_dir() and any(destination.iterdir()):
        raise ConfigError(
            f"the tree of {repository} would be written over files of another repository",
            where=config.place("sources.yaml", "repositories", repository, "path"),
            hint="a path of its own, or that of a submodule of the other repository",
        )
    with disk.report_full(destination):
        store, snapshot = _obtain(config, release, repository, cache, sms, report)
        store.checkout(snapshot, destination)
        destination.chmod(0o755)  # as git makes those inside: it may end up in an image, whatever the umask


def export_all(
    config: Config,
    release: str,
    trees: Mapping[str, Path],
    cache: Path,
    *,
    sms: Collection[Sm] = (),
    report: Reporter = print,
) -> None:
    """Write the verified trees of sources into their folders, side by side; submodules after what holds them.

    Raises ConfigError as `export` does.
    """

    def write(repository: str) -> None:
        report(f"exporting {repository} {pinned(config, release, repository).commit[:12]}")
        export(config, release, repository, cache, trees[repository], sms=sms, report=report)

    def depth(repository: str) -> int:
        return sum(tree in trees[repository].parents for tree in trees.values())

    for _, same in groupby(sorted(trees, key=depth), depth):
        _beside([partial(write, repository) for repository in same])


def entry_diff(config: Config, entry: Entry, cache: Path, *, report: Reporter = print) -> bytes:
    """Return the diff of a series entry: its own, or that of the commit it names."""
    return entry.diff if entry.commit is None else backport_diff(config, entry, cache, report=report)


def entry_diffs(
    config: Config, entries: Sequence[Entry], cache: Path, *, report: Reporter = print
) -> list[bytes]:
    """Return the diffs of series entries, in their order."""
    return _beside([partial(entry_diff, config, entry, cache, report=report) for entry in entries])


def backport_diff(config: Config, entry: Entry, cache: Path, *, report: Reporter = print) -> bytes:
    """Return the diff of a backport's commit, verified against the lock, restricted to the entry's paths.

    Raises PinError when the commit cannot be had or differs from the lock, PatchError when a path of the
    entry matches nothing that the commit changes.
    """
    locked = pinned_backport(config, entry)
    store, commit = store_of(config, entry.component, cache), entry.commit or ""
    found, whole = read_backport(store, commit, report)
    if found != locked:
        raise _mismatch(config, entry.name, commit, str(found), str(locked))
    for glob in entry.paths:
        if not store.changes_any(commit, glob):
            raise PatchError(f"{entry.name}: {glob} matches no file that {commit} changes")
    return read_diff(store, commit, entry.paths) if entry.paths else whole


def wanted_objects(
    config: Config, repository: str, releases: Collection[str], sms: Collection[Sm] = ()
) -> Iterator[Pinned]:
    """Yield everything that builds of the releases for `sms` (none: any) read from one repository."""
    for release in releases:
        if repository in config.sources.built(release):
            locked = pinned(config, release, repository)
            yield snapshot_of(config, repository, locked.commit, locked.ref, sms)
    for entry in backports(config, releases):
        if entry.component == repository:
            yield Change(entry.commit or "")


def _obtain(
    config: Config, release: str, repository: str, cache: Path, sms: Collection[Sm], report: Reporter
) -> tuple[Store, Snapshot]:
    locked = pinned(config, release, repository)
    store = store_of(config, repository, cache)
    snapshot = snapshot_of(config, repository, locked.commit, locked.ref, sms)
    store.obtain([snapshot], report)
    _require_tree(config, release, repository, store)
    return store, snapshot


def _require_tree(config: Config, release: str, repository: str, store: Store) -> None:
    """Raise PinError unless a commit that is in the store has the tree that the lock has."""
    locked = pinned(config, release, repository)
    tree = store.tree(locked.commit)
    if tree != locked.tree:
        raise _mismatch(config, f"{repository} of release {release}", locked.commit, tree, locked.tree)


def _mismatch(config: Config, what: str, commit: str, found: str, locked: str) -> PinError:
    return PinError(
        f"{what} does not match the lock: commit {commit} has {found}, the lock has {locked}",
        where=str(config.lock_file),
        hint=f"restore the lock from git, or {RELOCK} if the change is intended",
    )

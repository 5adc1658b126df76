"""Upstream's sources: pinned in a lock, fetched by commit, verified before use, carried in a bundle.

`sources.yaml` names repositories and refs; `invoke lock` resolves them to commit and tree. Every function
that hands sources on verifies them against the lock first: a commit id fixes the whole content, and the
tree id beside it shows a lock that was edited by hand or merged wrong.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from ftbuild.config.schema import Config, Lock, LockedBackport, LockedSource
from ftbuild.errors import ConfigError, PatchError, PinError
from ftbuild.host.files import write_atomic
from ftbuild.host.git import report_disk_full
from ftbuild.sm import Sm
from ftbuild.sources import bundle as bundles
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import Entry
from ftbuild.sources.store import Change, Pinned, Snapshot, Store, is_commit
from ftbuild.text.reporter import Reporter

_HEADER = """\
# Written by `invoke lock` from sources.yaml and the backports of the patch series. Do not edit: every build
# verifies commits, trees and diffs against this file, and `invoke lock --check` compares it with upstream.
"""
RELOCK = "invoke lock"


def pinned(config: Config, release: str, repository: str) -> LockedSource:
    """The pin of a source; PinError when the lock lacks it or was made for another ref."""
    locked = config.lock.sources.get(release, {}).get(repository)
    ref = config.sources.releases[release][repository].ref
    if locked is None:
        raise _unlocked(config, f"{repository} of release {release} is not in the lock")
    if locked.ref != ref:
        raise _unlocked(
            config, f"{repository} of release {release} is locked for {locked.ref}, sources.yaml says {ref}"
        )
    return locked


def pinned_backport(config: Config, entry: Entry) -> LockedBackport:
    """The pin of a backported commit; PinError when the lock lacks it."""
    locked = config.lock.backports.get(entry.component, {}).get(entry.commit or "")
    if locked is None:
        raise _unlocked(config, f"commit {entry.commit} of {entry.name} is not in the lock")
    return locked


def chosen(config: Config, names: Collection[str]) -> list[str]:
    """The releases named (none: all), in the order of sources.yaml; ConfigError for an unknown one."""
    if unknown := set(names) - set(config.sources.releases):
        raise ConfigError(
            f"release {', '.join(sorted(unknown))} is not in sources.yaml",
            hint=f"one of {', '.join(config.sources.releases)}",
        )
    return [release for release in config.sources.releases if not names or release in names]


def lock(
    config: Config,
    cache: Path,
    *,
    bases: Mapping[str, Mapping[str, str]] | None = None,
    releases: Collection[str] = (),
    report: Reporter = print,
) -> Lock:
    """Resolve the refs of `releases` (none named: all) and every backport, and write the lock.

    `bases` are the digests of bases to write (None: those that the lock has). What it says of other
    releases stays. Raises PinError when a repository does not answer or lacks a ref or commit.
    """
    with report_disk_full(cache):
        made = _resolve(config, cache, releases, report).model_copy(
            update={"bases": config.lock.bases if bases is None else bases}
        )
        text = _HEADER + yaml.safe_dump(made.model_dump(mode="json"), sort_keys=True, width=110)
        write_atomic(config.lock_file, text)
    return made


def check(config: Config, cache: Path, *, report: Reporter = print) -> None:
    """PinError with every difference between the lock and what locking again would write."""
    with report_disk_full(cache):
        wanted = _flat(_resolve(config, cache, (), report))
    written = _flat(config.lock)
    drift = [
        f"{key}: the lock says {written.get(key, 'nothing')}, upstream {wanted.get(key, 'nothing')}"
        for key in sorted(wanted.keys() | written.keys())
        if wanted.get(key) != written.get(key)
    ]
    if drift:
        raise PinError(
            "\n    ".join(["the lock does not match sources.yaml, the series and upstream", *drift]),
            where=str(config.lock_file),
            hint=f"{RELOCK}, and read the difference before you commit it",
        )


def fetch(
    config: Config, release: str, cache: Path, *, sms: Collection[Sm] = (), report: Reporter = print
) -> None:
    """Bring everything that builds of `release` for `sms` (none: any) read into the cache, and verify it.

    Needs no network when it is all there. Raises PinError naming repository and URLs when a source cannot
    be had, and both ids where one differs from the lock.
    """
    with report_disk_full(cache):
        for repository in config.sources.built(release):
            _obtain(config, release, repository, cache, sms, report)
        for entry in _backports(config, [release]):
            backport_diff(config, entry, cache, report=report)


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
    """Write of the verified tree of a source what builds for `sms` (none: any) read into `destination`."""
    with report_disk_full(destination):
        store, snapshot = _obtain(config, release, repository, cache, sms, report)
        store.checkout(snapshot, destination)


def diff(config: Config, entry: Entry, cache: Path, *, report: Reporter = print) -> bytes:
    """The diff of a series entry: its own, or that of the commit it names."""
    return entry.diff if entry.commit is None else backport_diff(config, entry, cache, report=report)


def backport_diff(config: Config, entry: Entry, cache: Path, *, report: Reporter = print) -> bytes:
    """The diff of a backport's commit, verified against the lock, restricted to the entry's paths.

    Raises PinError when the commit cannot be had or differs from the lock, PatchError when a path of the
    entry matches nothing that the commit changes.
    """
    locked = pinned_backport(config, entry)
    store, commit = store_of(config, entry.component, cache), entry.commit or ""
    found, whole = _backport(store, commit, report)
    if found != locked:
        raise _mismatch(config, entry.name, commit, str(found), str(locked))
    for glob in entry.paths:
        if not store.changes_any(commit, glob):
            raise PatchError(f"{entry.name}: {glob} matches no file that {commit} changes")
    return _diff(store, commit, entry.paths) if entry.paths else whole


def bundle(
    config: Config, file: Path, cache: Path, *, releases: Collection[str] = (), report: Reporter = print
) -> None:
    """Write all that builds of `releases` (none named: all) fetch into one file, fetching it first."""
    selected = chosen(config, releases)
    with report_disk_full(file):
        for release in selected:
            fetch(config, release, cache, report=report)
        stores = {name: store_of(config, name, cache) for name in config.sources.repositories}
        wanted = {name: list(dict.fromkeys(_wanted(config, name, selected))) for name in stores}
        bundles.write(file, {name: (stores[name], wants) for name, wants in wanted.items() if wants}, report)


def unbundle(config: Config, file: Path, cache: Path, *, report: Reporter = print) -> None:
    """Take a bundle into the cache, so that `fetch` finds its releases without network.

    Raises PinError when the file is damaged, or holds no release as the lock pins it.
    """
    stores = {name: store_of(config, name, cache) for name in config.sources.repositories}
    with report_disk_full(cache):
        bundles.read(file, stores, report)
    complete = [release for release in config.lock.sources if _holds(config, stores, release)]
    if not complete:
        raise PinError(
            "the bundle holds no release as this lock pins it",
            where=f"{file}, {config.lock_file}",
            hint="make it with invoke bundle from the same checkout",
        )
    report(f"{file} holds everything for {', '.join(complete)}")


def _resolve(config: Config, cache: Path, releases: Collection[str], report: Reporter) -> Lock:
    selected = chosen(config, releases)
    commits = {name: _commits(config, name, selected, cache, report) for name in config.sources.repositories}
    sources = {r: dict(s) for r, s in config.lock.sources.items() if r in config.sources.releases}
    for release in selected:
        sources[release] = {}
        for name, source in config.sources.releases[release].items():
            store = store_of(config, name, cache)
            snapshot = snapshot_of(config, name, commits[name][source.ref], source.ref)
            store.obtain(snapshot, report)
            sources[release][name] = LockedSource(
                ref=source.ref, commit=snapshot.commit, tree=store.tree(snapshot.commit)
            )
    backports: dict[str, dict[str, LockedBackport]] = {}
    for entry in _backports(config):
        store, commit = store_of(config, entry.component, cache), entry.commit or ""
        backports.setdefault(entry.component, {})[commit], _ = _backport(store, commit, report)
    return Lock(sources=sources, backports=backports, bases=config.lock.bases)


def _commits(
    config: Config, name: str, releases: Iterable[str], cache: Path, report: Reporter
) -> dict[str, str]:
    """Ref -> commit of one repository; a ref that is a commit id is itself."""
    sources = (config.sources.releases[release].get(name) for release in releases)
    refs = sorted({source.ref for source in sources if source})
    named = [ref for ref in refs if not is_commit(ref)]
    for ref in named:
        if not ref.startswith("refs/"):
            raise ConfigError(
                f"ref {ref!r} of {name} is neither a full ref nor a full commit id",
                where=str(config.folder / "sources.yaml"),
                hint="refs/tags/NAME, refs/heads/NAME or 40 hex digits",
            )
    if named:
        report(f"{name}: resolving {', '.join(named)}")
    found = store_of(config, name, cache).resolve(named) if named else {}
    return {**{ref: ref for ref in refs}, **found}


def _flat(lock: Lock) -> dict[str, str]:
    """Every value that locking decides, by its place."""

    def walk(place: str, value: object) -> Iterator[tuple[str, str]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from walk(f"{place} {key}".strip(), inner)
        else:
            yield place, str(value)

    return dict(walk("", lock.model_dump(mode="json", exclude={"bases"})))


def store_of(config: Config, repository: str, cache: Path) -> Store:
    """The objects of a repository in the shared cache, and the URLs that fill it."""
    described = config.sources.repositories[repository]
    return Store(cache, repository, [_address(config, url) for url in (described.url, *described.mirrors)])


def _address(config: Config, url: str) -> str:
    """A URL as git takes it; one without scheme and host is a path beside sources.yaml (git-fetch(1))."""
    return url if ":" in url.split("/")[0] else str(config.path(url))


def snapshot_of(config: Config, repository: str, commit: str, ref: str, sms: Collection[Sm] = ()) -> Snapshot:
    """What builds for `sms` (none: any) read of a commit, to which `ref` leads."""
    described = config.sources.repositories[repository]
    return Snapshot(commit, described.sparse, ref, described.left_out(sms))


def _obtain(
    config: Config, release: str, repository: str, cache: Path, sms: Collection[Sm], report: Reporter
) -> tuple[Store, Snapshot]:
    locked = pinned(config, release, repository)
    store = store_of(config, repository, cache)
    snapshot = snapshot_of(config, repository, locked.commit, locked.ref, sms)
    store.obtain(snapshot, report)
    tree = store.tree(locked.commit)
    if tree != locked.tree:
        raise _mismatch(config, f"{repository} of release {release}", locked.commit, tree, locked.tree)
    return store, snapshot


def _backports(config: Config, releases: Collection[str] | None = None) -> Iterator[Entry]:
    """Every backport of the series, or only those that one of `releases` takes."""
    for component, entries in series.series(config).items():
        versions = [config.version(release, component) for release in releases or ()]
        for entry in entries:
            taken = releases is None or any(series.applicable([entry], version) for version in versions)
            if entry.commit and taken:
                yield entry


def _backport(store: Store, commit: str, report: Reporter) -> tuple[LockedBackport, bytes]:
    """What the lock says of a commit, and its whole diff."""
    store.obtain(Change(commit), report)
    diff = _diff(store, commit)
    digest = hashlib.sha256(diff).hexdigest()
    return LockedBackport(tree=store.tree(commit), diff=f"sha256:{digest}"), diff


def _diff(store: Store, commit: str, paths: Sequence[str] = ()) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
        file = Path(scratch, "diff")
        store.diff(commit, file, paths)
        return file.read_bytes()


def _wanted(config: Config, repository: str, releases: Collection[str]) -> Iterator[Pinned]:
    """Everything that builds of the releases read from one repository."""
    for release in releases:
        if repository in config.sources.built(release):
            locked = pinned(config, release, repository)
            yield snapshot_of(config, repository, locked.commit, locked.ref)
    for entry in _backports(config, releases):
        if entry.component == repository:
            yield Change(entry.commit or "")


def _holds(config: Config, stores: Mapping[str, Store], release: str) -> bool:
    return all(
        store.holds(wanted) for name, store in stores.items() for wanted in _wanted(config, name, [release])
    )


def _unlocked(config: Config, what: str) -> PinError:
    return PinError(what, where=str(config.lock_file), hint=RELOCK)


def _mismatch(config: Config, what: str, commit: str, found: str, locked: str) -> PinError:
    return PinError(
        f"{what} does not match the lock: commit {commit} has {found}, the lock says {locked}",
        where=str(config.lock_file),
        hint=f"restore the lock from git, or {RELOCK} if the change is meant",
    )

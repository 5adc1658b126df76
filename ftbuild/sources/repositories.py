"""The repositories of sources.yaml as stores of the shared cache, and what releases take from them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ftbuild.config.schema import Config, LockedBackport
from ftbuild.errors import ConfigError
from ftbuild.sm import Sm
from ftbuild.sources.objects import Change, Snapshot
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import Entry
from ftbuild.sources.store import Store
from ftbuild.text.reporter import Reporter


def chosen_releases(config: Config, names: Collection[str]) -> list[str]:
    """Return the releases named (none: all), in the order of sources.yaml; ConfigError for an unknown one."""
    if unknown := set(names) - set(config.sources.releases):
        raise ConfigError(
            f"release {', '.join(sorted(unknown))} is not in sources.yaml",
            hint=f"one of {', '.join(config.sources.releases)}",
        )
    return [release for release in config.sources.releases if not names or release in names]


def store_of(config: Config, repository: str, cache: Path) -> Store:
    """Return the objects of a repository in the shared cache, with the URLs that fill it."""
    described = config.sources.repositories[repository]
    return Store(cache, repository, [config.git_url(url) for url in (described.url, *described.mirrors)])


def snapshot_of(config: Config, repository: str, commit: str, ref: str, sms: Collection[Sm] = ()) -> Snapshot:
    """Return what builds for `sms` (none: any) read of a commit, to which `ref` leads."""
    described = config.sources.repositories[repository]
    return Snapshot(commit, described.sparse, ref, described.left_out(sms))


def backports(config: Config, releases: Collection[str] | None = None) -> Iterator[Entry]:
    """Yield every backport of the series, or only those that one of `releases` takes."""
    for component, entries in series.read_series(config).items():
        versions = [config.version(release, component) for release in releases or ()]
        for entry in entries:
            taken = releases is None or any(series.applicable([entry], version) for version in versions)
            if entry.commit and taken:
                yield entry


def read_backport(store: Store, commit: str, report: Reporter) -> tuple[LockedBackport, bytes]:
    """Fetch a backport's commit; return its pin and its whole diff."""
    store.obtain([Change(commit)], report)
    diff = read_diff(store, commit)
    digest = hashlib.sha256(diff).hexdigest()
    return LockedBackport(tree=store.tree(commit), diff=f"sha256:{digest}"), diff


def read_diff(store: Store, commit: str, paths: Sequence[str] = ()) -> bytes:
    """Return the diff of a commit that is in the store, of `paths` (none: all) only."""
    with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
        file = Path(scratch, "diff")
        store.diff(commit, file, paths)
        return file.read_bytes()

"""The repositories of sources.yaml as stores of the shared cache, and what releases take from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ftbuild.config.schema import Config, LockedBackport
from ftbuild.errors import ConfigError
from ftbuild.sm import Sm
from ftbuild.sources.objects import Snapshot
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


def urls(config: Config, repository: str) -> tuple[str, ...]:
    """Return the URLs of a repository, in the order in which they are asked."""
    described = config.sources.repositories[repository]
    return tuple(config.git_url(url) for url in (described.url, *described.mirrors))


def store_of(config: Config, repository: str, cache: Path) -> Store:
    """Return the objects of a repository in the shared cache, with the URLs that fill it."""
    return Store(cache, repository, urls(config, repository))


def snapshot_of(config: Config, repository: str, commit: str, ref: str, sms: Collection[Sm] = ()) -> Snapshot:
    """Return what builds for `sms` (none: any) read of a commit, to which `ref` leads."""
    described = config.sources.repositories[repository]
    return Snapshot(commit, described.sparse, ref, described.left_out(sms))


def backports(config: Config, releases: Collection[str] | None = None) -> Iterator[Entry]:
    """Yield every backport of the series, or only those that one of `releases` takes."""
    for component, entries in series.read_series(config).items():
        versions = [config.version(release, component) for release in releases or ()]
        for entry in entries:
            taken = releases is None or any(
                series.applicable([entry], version, lean=True) for version in versions
            )
            if entry.commit and taken:
                yield entry


def read_backport(store: Store, commit: str, report: Reporter) -> LockedBackport:
    """Fetch a backport's commit; return its pin."""
    tree, diff, _ = store.change(commit, report)
    return LockedBackport(tree=tree, diff=diff)

"""The inputs of a plan from configuration, lock and series. Nothing is fetched here."""

from __future__ import annotations

from collections.abc import Collection

from ftbuild.config.schema import Config
from ftbuild.host.redaction import redact
from ftbuild.sm import Sm
from ftbuild.sources import lock, repositories
from ftbuild.sources.inputs import Backport, PlannedPatch, PlannedSource
from ftbuild.sources.patches.series import Entry


def source(config: Config, release: str, name: str, sms: Collection[Sm] = ()) -> PlannedSource:
    """Return the source that builds of `release` for `sms` (none: any) take; PinError without a pin."""
    repository, ref = config.sources.repositories[name], config.sources.releases[release][name]
    pinned = lock.pinned(config, release, name)
    return PlannedSource(
        repository=name,
        url=redact(repository.url),
        ref=ref.ref,
        commit=pinned.commit,
        tree=pinned.tree,
        path=repository.path,
        sparse=repository.sparse,
        without=repository.left_out(sms),
        version=ref.version,
        server=repository.server,
        urls=repositories.urls(config, name),
    )


def patch(config: Config, entry: Entry) -> PlannedPatch:
    """Return what an entry of a series applies; PinError for a backport that the lock lacks."""
    urls = repositories.urls(config, entry.component)
    change: bytes | Backport = entry.diff
    if entry.commit is not None:
        pinned = lock.pinned_backport(config, entry)
        change = Backport(entry.commit, entry.paths, pinned.tree, pinned.diff)
    return PlannedPatch(entry.component, entry.file, entry.origin, change, urls)

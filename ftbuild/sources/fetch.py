"""What a release takes, by configuration: the inputs that a plan would have, fetched and written out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.sm import Sm
from ftbuild.sources import planned, taking
from ftbuild.sources.lock import pinned
from ftbuild.sources.objects import Change, Pinned
from ftbuild.sources.patches.series import Entry
from ftbuild.sources.repositories import backports, snapshot_of
from ftbuild.text.reporter import Reporter


def fetch_release(
    config: Config, release: str, cache: Path, *, sms: Collection[Sm] = (), report: Reporter = print
) -> None:
    """Bring everything that builds of `release` for `sms` (none: any) read into the cache, and verify it.

    Errors as those of `taking.obtain`.
    """
    sources = [planned.source(config, release, name, sms) for name in config.sources.built(release)]
    patches = [planned.patch(config, entry) for entry in backports(config, [release])]
    taking.obtain(sources, patches, cache, report=report)


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

    Errors as those of `taking.export`.
    """
    taking.export(planned.source(config, release, repository, sms), cache, destination, report=report)


def entry_diff(config: Config, entry: Entry, cache: Path, *, report: Reporter = print) -> bytes:
    """Return the diff of a series entry: its own, or that of the commit it names; see `taking.diff`."""
    return taking.diff(planned.patch(config, entry), cache, report=report)


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

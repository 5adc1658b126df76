"""What the cache holds beyond the locks: git objects, downloaded files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.host import files
from ftbuild.host.garbage import Garbage, size
from ftbuild.sources import downloads, requirements, wheels
from ftbuild.sources.fetch import wanted_objects
from ftbuild.sources.objects import Pinned
from ftbuild.sources.repositories import store_of
from ftbuild.sources.store import Store


def objects(config: Config, cache: Path) -> Iterator[Garbage]:
    """Yield what the stores of the configuration hold beyond the pins of the lock.

    Stores of other configurations stay; git objects of another checkout's pins are fetched again.
    """
    for name in config.sources.repositories:
        store = store_of(config, name, cache)
        if not store.folder.is_dir():
            continue
        wanted = list(wanted_objects(config, name, list(config.lock.sources)))
        sizes = store.sizes()
        unused = sum(sizes[each] for each in sizes.keys() - store.needed(wanted))
        if unused:
            yield Garbage("git objects", str(store.folder), unused, partial(_shrink, store, wanted))


def downloaded(config: Config, cache: Path) -> Iterator[Garbage]:
    """Yield the downloaded files that no lock of the configuration names, and what killed fetches left.

    What was used within a day stays, and what a work folder holds as well, as it would free nothing. Files of
    another checkout's locks are fetched again.
    """
    if unused := downloads.unused(_locked(config), cache):
        total = sum(map(size, unused))
        yield Garbage("downloads", str(cache / downloads.FOLDER), total, partial(_drop, unused))
    for left in files.leftovers(cache):
        yield Garbage("unfinished", str(left), size(left), partial(files.remove_leftovers, cache))


def _locked(config: Config) -> set[str]:
    """Return the sha256 of every file that a lock names."""
    debian = {package.sha256 for base in config.debian_lock.bases.values() for package in base.every()}
    python = {each.sha256 for file in wheels.files(config) for each in requirements.read(file).requirements}
    return debian | python


def _drop(unused: Sequence[Path]) -> str | None:
    return None if downloads.drop(unused) else "in use"


def _shrink(store: Store, wanted: Sequence[Pinned]) -> str | None:
    return None if store.shrink(wanted) else "in use"

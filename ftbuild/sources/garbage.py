"""Git objects in the cache that no pinned source needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.host.garbage import Garbage
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


def _shrink(store: Store, wanted: Sequence[Pinned]) -> str | None:
    return None if store.shrink(wanted) else "in use"

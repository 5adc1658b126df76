"""What a plan takes from upstream, closed: pins, what is exported of them, and diffs.

Whoever has these needs no configuration to fetch and write them out, and nothing that is edited meanwhile
changes them. URLs are places to ask, not content: commits, trees and digests decide what is taken.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import Base64Bytes

from ftbuild.sources.objects import Change, Snapshot
from ftbuild.sources.store import Store

# Not for records: an address may hold a password, and a diff is long.
_KEPT_OUT = ("urls", "change")


@dataclass(frozen=True)
class PlannedSource:
    """A pinned tree and its place below the source root; `server`: its base compiles it, not the cell.

    `url` is for people; `urls` are asked in order. Of the tree only the folders `sparse` (none: all) are
    exported, less the files that match `without`.
    """

    repository: str
    url: str
    ref: str
    commit: str
    tree: str
    path: str
    sparse: tuple[str, ...]
    without: tuple[str, ...]
    version: str | None
    server: bool = False
    urls: tuple[str, ...] = field(default=(), repr=False)

    @property
    def snapshot(self) -> Snapshot:
        """The part of the commit that is exported."""
        return Snapshot(self.commit, self.sparse, self.ref, self.without)

    def store(self, cache: Path) -> Store:
        """Return the objects of its repository in the shared cache."""
        return Store(cache, self.repository, self.urls)

    def record(self) -> dict[str, object]:
        """Return what a record says of it."""
        return {name: value for name, value in asdict(self).items() if name not in _KEPT_OUT}


@dataclass(frozen=True)
class Backport:
    """A commit of upstream's whose change is taken, of `paths` (globs; none: all) only.

    `tree` and `diff` (sha256 of the whole diff) are those that the lock has.
    """

    commit: str
    paths: tuple[str, ...]
    tree: str
    diff: str


@dataclass(frozen=True)
class PlannedPatch:
    """A series entry that applies: a diff of ours, or a backport, which `urls` are asked for."""

    component: str
    file: str
    origin: str
    change: Base64Bytes | Backport = field(repr=False)
    urls: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """`<component>/<file>`."""
        return f"{self.component}/{self.file}"

    @property
    def fingerprint(self) -> str:
        """The sha256 of the change: of the diff, or of commit and paths, without the header."""
        change = self.change
        content = (
            " ".join([change.commit, *change.paths]).encode() if isinstance(change, Backport) else change
        )
        return hashlib.sha256(content).hexdigest()

    def store(self, cache: Path) -> Store:
        """Return the objects of its component in the shared cache."""
        return Store(cache, self.component, self.urls)

    @property
    def wanted(self) -> Change | None:
        """What the cache must have of upstream; None for a diff of ours."""
        return Change(self.change.commit) if isinstance(self.change, Backport) else None

    def record(self) -> dict[str, object]:
        """Return what a record says of it."""
        kept = {name: value for name, value in asdict(self).items() if name not in _KEPT_OUT}
        return {**kept, "fingerprint": self.fingerprint}

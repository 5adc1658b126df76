"""The inputs of a plan, carried out: fetched when missing, verified against their pins, written, patched.

Nothing here reads a configuration: what is taken is what the plan holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from ftbuild.errors import ConfigError, PatchError, PinError
from ftbuild.host import disk, threads
from ftbuild.sources.inputs import Backport, PlannedPatch, PlannedSource
from ftbuild.sources.objects import Pinned
from ftbuild.sources.patches import series
from ftbuild.sources.store import Store
from ftbuild.text.reporter import Reporter


def obtain(
    sources: Collection[PlannedSource],
    patches: Collection[PlannedPatch],
    cache: Path,
    *,
    report: Reporter = print,
) -> None:
    """Bring sources and the commits of backports into the cache, and verify them.

    Needs no network when the cache has it all. Raises PinError naming repository and URLs when a source
    cannot be had, and both ids where one differs from the lock.
    """
    with disk.report_full(cache):
        wanted: dict[Path, tuple[Store, list[Pinned]]] = {}
        for source in sources:
            store = source.store(cache)
            wanted.setdefault(store.folder, (store, []))[1].append(source.snapshot)
        for patch in patches:
            if change := patch.wanted:
                store = patch.store(cache)
                wanted.setdefault(store.folder, (store, []))[1].append(change)
        # Side by side: each server is waited for most of the time.
        threads.results([partial(store.obtain, some, report) for store, some in wanted.values()])
        for source in sources:
            _require_tree(source, source.store(cache))
        diffs([patch for patch in patches if patch.wanted], cache, report=report)


def export(source: PlannedSource, cache: Path, destination: Path, *, report: Reporter = print) -> None:
    """Write the verified tree of a source, as far as it is taken, into `destination`.

    Raises ConfigError when files of another source are there.
    """
    if destination.is_dir() and any(destination.iterdir()):
        raise ConfigError(
            f"the tree of {source.repository} would be written over files of another repository",
            where=f"sources.yaml: repositories.{source.repository}.path",
            hint="a path of its own, or that of a submodule of the other repository",
        )
    with disk.report_full(destination):
        store = source.store(cache)
        store.obtain([source.snapshot], report)
        _require_tree(source, store)
        store.checkout(source.snapshot, destination)
        destination.chmod(0o755)  # as git makes those inside: it may end up in an image, whatever the umask


def export_all(
    sources: Iterable[PlannedSource], trees: Mapping[str, Path], cache: Path, *, report: Reporter = print
) -> None:
    """Write the verified trees of sources into their folders, side by side; submodules after what holds them.

    `trees` has the folder of each repository. Raises ConfigError as `export` does.
    """

    def write(source: PlannedSource) -> None:
        report(f"exporting {source.repository} {source.commit[:12]}")
        export(source, cache, trees[source.repository], report=report)

    def depth(source: PlannedSource) -> int:
        return sum(tree in trees[source.repository].parents for tree in trees.values())

    for _, same in groupby(sorted(sources, key=depth), depth):
        threads.results([partial(write, source) for source in same])


def diff(patch: PlannedPatch, cache: Path, *, report: Reporter = print) -> bytes:
    """Return the diff of a patch: its own, or that of the commit it names, verified against the lock.

    Raises PinError when the commit cannot be had or differs from the lock, PatchError when a path of the
    patch matches nothing that the commit changes.
    """
    change = patch.change
    if not isinstance(change, Backport):
        return change
    store = patch.store(cache)
    tree, digest, whole = store.change(change.commit, report)
    if (tree, digest) != (change.tree, change.diff):
        raise _mismatch(patch.name, change.commit, f"{tree} and {digest}", f"{change.tree} and {change.diff}")
    for glob in change.paths:
        if not store.changes_any(change.commit, glob):
            raise PatchError(f"{patch.name}: {glob} matches no file that {change.commit} changes")
    return store.read_diff(change.commit, change.paths) if change.paths else whole


def diffs(patches: Sequence[PlannedPatch], cache: Path, *, report: Reporter = print) -> list[bytes]:
    """Return the diffs of patches, in their order."""
    return threads.results([partial(diff, patch, cache, report=report) for patch in patches])


def apply(
    patches: Iterable[PlannedPatch],
    trees: Mapping[str, Path],
    versions: Mapping[str, str],
    cache: Path,
    report: Reporter,
) -> None:
    """Apply patches, in their order, to the exported `trees` (component -> folder), and to no others.

    `versions` are those of the components. Raises PatchError naming patch, file and hunk at the first one
    that does not apply.
    """
    by_component: dict[str, list[PlannedPatch]] = {}
    for patch in patches:
        if patch.component in trees:
            by_component.setdefault(patch.component, []).append(patch)
    for component, some in by_component.items():
        report(f"patching {component} {versions[component]} ({len(some)} entries)")
        for patch, change in zip(some, diffs(some, cache, report=report), strict=True):
            series.apply(trees[component], patch, change, version=versions[component])


def _require_tree(source: PlannedSource, store: Store) -> None:
    """Raise PinError unless a commit that is in the store has the tree that the lock has."""
    tree = store.tree(source.commit)
    if tree != source.tree:
        raise _mismatch(f"{source.repository} of {source.ref}", source.commit, tree, source.tree)


def _mismatch(what: str, commit: str, found: str, locked: str) -> PinError:
    return PinError(
        f"{what} does not match the lock: commit {commit} has {found}, the lock has {locked}",
        where="sources.lock.yaml",
        hint="restore the lock from git, or invoke lock if the change is intended",
    )

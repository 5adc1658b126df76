"""Comparison of an SDK image's sources with the pinned trees and the series applied.

The trees are made again from pins and patches and compared file by file, which shows more than reversing each
patch: files that no patch touches count as well.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ftbuild.gates.subject import Subject
from ftbuild.plan import Plan
from ftbuild.sources import taking
from ftbuild.sources.inputs import PlannedPatch, PlannedSource
from ftbuild.sources.patches import hunks

Place = tuple[str, str]  # component, path in its tree
Digests = Mapping[Place, str]


@dataclass(frozen=True)
class Tree:
    """The part of a component's tree that the SDK image holds below `folder` (triton-ft.Dockerfile)."""

    component: str
    folder: str
    parts: tuple[str, ...]


TREES = (
    Tree("ft", "/opt/ftbuild/FasterTransformer", ("examples",)),
    Tree("backend", "/opt/ftbuild/fastertransformer_backend", ("all_models", "tools")),
)
UNPATCHED = "files that no patch changes"


@dataclass(frozen=True)
class Expected:
    """Digests of the pinned, patched sources: of all files that the SDK image holds, and of those changed.

    `touched` has the files that each patch changes, which `changed` has the digests of.
    """

    shipped: Digests
    touched: Mapping[str, Set[Place]]
    changed: Digests


@dataclass
class Comparison:
    """By patch, the faults in files that it changes; and the patches without any file to compare."""

    wrong: dict[str, list[str]] = field(default_factory=dict)
    right: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    files: int = 0


def in_tar(tree: Tree, stream: Iterable[bytes]) -> dict[Place, str]:
    """Return the digest of every file of a tar of `tree.folder`."""
    digests = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
        for member in tar:
            path = str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
            if member.issym():
                digests[tree.component, path] = member.linkname
            elif (content := tar.extractfile(member)) is not None:
                digests[tree.component, path] = hashlib.sha256(content.read()).hexdigest()
    return digests


def prepare(subject: Subject) -> Expected:
    """Fetch what the cache lacks, all repositories side by side, and return `expected` of it."""
    patches = _own_patches(subject.plan)
    taking.obtain(_compared(subject.plan, patches), patches, subject.cache, report=subject.report)
    return expected(subject)


def expected(subject: Subject) -> Expected:
    """Return what a pair of images of the cell is made of, from the pinned, patched sources of the plan.

    Fetches what the cache lacks; raises PinError and PatchError as a build would.
    """
    changes = _changes(subject)
    touched = _touched(changes)
    with _patched(subject, changes) as trees:
        shipped = {place: digest for tree in TREES for place, digest in _shipped(tree, trees)}
        changed = {
            place: _digest(trees[place[0]] / place[1]) for places in touched.values() for place in places
        }
    return Expected(shipped, touched, changed)


def compare(pinned: Expected, image: Digests, plan: Plan, *, staged: Path | None) -> Comparison:
    """Compare `image` (of every tree in TREES) with the pinned, patched sources of the cell.

    Patches that change compiled files only are looked for in the `staged` sources of the build, if these
    still exist.
    """
    shipped = pinned.shipped
    differing = {place for place in shipped.keys() | image.keys() if shipped.get(place) != image.get(place)}
    outcome = Comparison(files=len(shipped))
    explained: set[Place] = set()
    for name, places in pinned.touched.items():
        if shown := places & shipped.keys():
            _note(outcome, name, shown & differing, shipped, image)
            explained |= shown
        elif staged and staged.is_dir():
            there = {place: _digest(staged / plan.source(place[0]).path / place[1]) for place in places}
            lacking = {place for place in places if pinned.changed[place] != there[place]}
            _note(outcome, name, lacking, pinned.changed, there)
        else:
            outcome.elsewhere.append(name)
    if unexplained := differing - explained:
        _note(outcome, UNPATCHED, unexplained, shipped, image)
    return outcome


def _note(outcome: Comparison, name: str, places: set[Place], pinned: Digests, image: Digests) -> None:
    if not places:
        outcome.right.append(name)
    for component, path in sorted(places):
        if not image.get((component, path)):
            state = "is missing"
        else:
            state = "differs" if pinned.get((component, path)) else "does not belong there"
        outcome.wrong.setdefault(name, []).append(f"{component}/{path} {state}")


@contextmanager
def _patched(subject: Subject, patches: Sequence[PlannedPatch]) -> Iterator[dict[str, Path]]:
    """Export and patch the trees of the cell's own components, for as long as the context lasts."""
    plan, cache, report = subject.plan, subject.cache, subject.report
    sources = _compared(plan, patches)
    versions = {source.repository: source.version or "" for source in sources}
    with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
        trees = {name: Path(scratch) / name for name in versions}
        for source in sources:
            taking.export(source, cache, trees[source.repository], report=report)
        taking.apply(patches, trees, versions, cache, report)
        yield trees


def _compared(plan: Plan, patches: Iterable[PlannedPatch]) -> list[PlannedSource]:
    """Return the sources that the SDK image holds, and those that are patched."""
    compared = {tree.component for tree in TREES} | {patch.component for patch in patches}
    return [source for source in plan.own_sources if source.repository in compared]


def _own_patches(plan: Plan) -> list[PlannedPatch]:
    """Return the patches but for those of a server that its base compiles."""
    own = {source.repository for source in plan.own_sources}
    return [patch for patch in plan.patches if patch.component in own]


def _changes(subject: Subject) -> list[PlannedPatch]:
    """Return the patches of the cell's own components, each with its diff.

    Git works half a second for those of all backports, which are read here, and not when they are applied.
    """
    patches = _own_patches(subject.plan)
    diffs = taking.diffs(patches, subject.cache, report=subject.report)
    return [replace(patch, change=diff) for patch, diff in zip(patches, diffs, strict=True)]


def _touched(patches: Iterable[PlannedPatch]) -> dict[str, set[Place]]:
    """Return the files that each patch changes."""
    return {
        patch.name: {(patch.component, hunk.file) for hunk in hunks.parse_hunks(_text(patch))}
        for patch in patches
    }


def _text(patch: PlannedPatch) -> str:
    assert isinstance(patch.change, bytes)  # by `_changes`
    return patch.change.decode("utf-8", "replace")


def _shipped(tree: Tree, trees: Mapping[str, Path]) -> Iterator[tuple[Place, str]]:
    root = trees[tree.component]
    for part in tree.parts:
        for path in (root / part).rglob("*"):
            if digest := _digest(path):
                yield (tree.component, path.relative_to(root).as_posix()), digest


def _digest(path: Path) -> str:
    """Return the sha256 of a file, the target of a link, or an empty string for anything else."""
    if path.is_symlink():
        return str(path.readlink())
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

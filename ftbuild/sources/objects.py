"""Git objects of a bare repository: completeness, checkout, diff and packs of pinned commits.

Histories are cut and, where only part of a tree is needed, blobs are left out (partial clone,
https://git-scm.com/docs/partial-clone).
"""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from ftbuild.errors import PinError
from ftbuild.host.files import workplace
from ftbuild.host.git import git, last_line
from ftbuild.host.shell import CommandFailed, Result

# Git's id of the empty tree, which every repository knows: what a first commit is compared with.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_GITLINK = "160000"
_NO_OBJECT = "0" * 40
# Attributes inside a tree (line ends, keywords, filters) must not change what is checked out: this file of
# the repository comes before them (gitattributes(5)).
_ATTRIBUTES = "* -text -ident -filter -working-tree-encoding !diff\n"
_COMPARE = ("diff-tree", "-r", "--no-renames")
# Every option that a git setting or a version of git could decide otherwise.
_AS_PATCH = (
    "--patch",
    "--binary",
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
)


@dataclass(frozen=True)
class Snapshot:
    """The tree of a commit, or only the folders `paths` of it, less the files that match `without` (fnmatch).

    `ref` leads to it on a server without ids.
    """

    commit: str
    paths: tuple[str, ...] = ()
    ref: str | None = None
    without: tuple[str, ...] = ()

    depth = 1

    @property
    def partial(self) -> bool:
        """Whether blobs may be left out."""
        return bool(self.paths or self.without)

    @property
    def roots(self) -> tuple[str, ...]:
        """The paths to walk; the empty one is the whole tree."""
        return self.paths or ("",)

    def leaves_out(self, path: str) -> bool:
        """Return whether a file of the tree is left out."""
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.without)


@dataclass(frozen=True)
class Change:
    """The change of a commit against its first parent: both trees, and the files that differ."""

    commit: str

    ref = None
    depth = 2
    partial = True
    roots = ("",)


Pinned = Snapshot | Change


class _Entry(NamedTuple):
    """A line of `git ls-tree`, which `git update-index --index-info` takes as it is."""

    kind: str
    name: str
    path: str
    line: str


class Objects:
    """A bare repository as a container of objects."""

    def __init__(self, folder: Path) -> None:
        """The repository need not exist yet."""
        self.folder = folder
        self._parents_of: dict[str, tuple[str, ...]] = {}

    def holds(self, wanted: Pinned) -> bool:
        """Return whether every object of `wanted` is here."""
        return self.folder.is_dir() and self.missing(wanted) == frozenset()

    def missing(self, wanted: Pinned) -> frozenset[str] | None:
        """Return the missing blobs of `wanted`; None when even commits or trees are missing."""
        try:
            roots = [f"{commit}:{path}" for commit in self._commits(wanted) for path in wanted.roots]
            walk = self.git("rev-list", "--objects", "--no-object-names", "--missing=print", *roots).stdout
            missing = frozenset(line[1:] for line in walk.splitlines() if line.startswith("?"))
            if missing and (isinstance(wanted, Change) or wanted.without):
                missing &= self._blobs(wanted)
        except CommandFailed:
            return None
        return missing

    def tree(self, commit: str) -> str:
        """Return the tree id of a commit that is here; PinError when it cannot be read."""
        try:
            return self.git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.strip()
        except CommandFailed as unreadable:
            raise self._damaged(last_line(unreadable)) from unreadable

    def diff(self, commit: str, file: Path, globs: Sequence[str] = ()) -> None:
        """Write to `file` what `commit` changes, in a form that no git setting alters.

        Written by git, since a diff may have bytes that are not text. `globs` as in gitglossary(7), magic
        `glob`; none: all of it.
        """
        specs = map(_pathspec, globs)
        self.git(*_COMPARE, *_AS_PATCH, f"--output={file}", *self._ends(commit), "--", *specs)

    def changes_any(self, commit: str, glob: str) -> bool:
        """Return whether `commit` changes a file that `glob` matches."""
        return bool(self.git(*_COMPARE, "--name-only", *self._ends(commit), "--", _pathspec(glob)).stdout)

    def checkout(self, wanted: Snapshot, destination: Path) -> None:
        """Write the files of `wanted` into `destination`: modes kept, submodules empty folders, no `.git`.

        Raises PinError when an object is not what its name says: git itself trusts what it has stored.
        """
        destination.mkdir(parents=True, exist_ok=True)
        # On the disk of the store: git renames a finished pack out of it.
        with workplace(self.folder / "checkout") as scratch:
            verified = self._rehashed(wanted, scratch / "objects")
            env = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_WORK_TREE": str(destination.absolute())}
            index = "".join(f"{entry.line}\n" for entry in verified._files(wanted))
            verified.git("update-index", "--index-info", env=env, stdin=index)
            verified.git("checkout-index", "--all", "--force", "--quiet", cwd=destination, env=env)

    def pack(self, wanted: Iterable[Pinned], folder: Path, *options: str) -> Path:
        """Pack all objects of `wanted`, which are here, into one file in `folder` (on the same disk)."""
        names = frozenset().union(*(self._objects(want) for want in wanted))
        return self._packed(names, folder, *options)

    def sizes(self) -> dict[str, int]:
        """Return the bytes on disk of every object that is here."""
        form = "--batch-check=%(objectname) %(objectsize:disk)"
        listing = self.git("cat-file", "--batch-all-objects", "--unordered", form).stdout
        return {name: int(size) for name, size in map(str.split, listing.splitlines())}

    def needed(self, wanted: Iterable[Pinned]) -> frozenset[str]:
        """Return the ids of the objects of `wanted` that are here, also where others are missing."""
        names: set[str] = set()
        for want in wanted:
            with suppress(CommandFailed, PinError):  # not fetched
                names |= self._objects(want)
        return frozenset(names & self.sizes().keys())

    def _packed(self, names: Iterable[str], folder: Path, *options: str) -> Path:
        listing = "".join(f"{name}\n" for name in sorted(names))
        packed = self.git("pack-objects", "--quiet", *options, str(folder / "pack"), stdin=listing)
        return folder / f"pack-{packed.stdout.strip()}.pack"

    def _rehashed(self, wanted: Pinned, folder: Path) -> Objects:
        """Return a new repository with the objects of `wanted`, each under the hash of its content."""
        verified = Objects(folder)
        try:
            verified.make()
            # Without a window: no time is spent on a smaller pack.
            pack = self.pack([wanted], folder / "objects" / "pack", "--window=0")
            pack.with_suffix(".idx").unlink()  # it repeats the names that the objects have here
            verified.git("index-pack", str(pack))
        except CommandFailed as unreadable:
            raise self._damaged(last_line(unreadable)) from unreadable
        if not verified.holds(wanted):
            raise self._damaged(f"an object of {wanted.commit} is not what its name says")
        return verified

    def index(self, pack: IO[bytes]) -> None:
        """Add a pack; CommandFailed when it is incomplete."""
        mine = self.folder / "objects" / "pack" / "incoming.pack"
        with mine.open("wb") as file:
            shutil.copyfileobj(pack, file)
        digest = self.git("index-pack", str(mine)).stdout.split()[-1]
        mine.rename(mine.with_name(f"pack-{digest}.pack"))
        mine.with_suffix(".idx").rename(mine.with_name(f"pack-{digest}.idx"))

    def make(self) -> None:
        """Create the repository, or complete one whose creation was interrupted."""
        git("init", "--bare", "--quiet", "--template=", "--object-format=sha1", str(self.folder))
        # No ref leads to the objects: `git gc` must not remove them.
        self.git("config", "gc.pruneExpire", "never")
        attributes = self.folder / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text(_ATTRIBUTES)

    def git(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> Result:
        """Run git on this repository."""
        return git(
            *arguments,
            cwd=cwd or self.folder,
            env={"GIT_DIR": str(self.folder), **(env or {})},
            stdin=stdin,
            check=check,
        )

    def _damaged(self, why: str) -> PinError:
        return PinError(
            f"the cache of fetched sources is damaged: {why}",
            where=str(self.folder),
            hint="remove this folder: the next build fetches the source again",
        )

    def _objects(self, wanted: Pinned) -> frozenset[str]:
        """Return the ids of all objects that a checkout of a snapshot, or the diff of a change, reads."""
        names = set(self._blobs(wanted))
        for commit in self._commits(wanted):
            names |= {commit, self.tree(commit)}
            names |= {entry.name for entry in self._entries(commit, wanted.roots) if entry.kind == "tree"}
        return frozenset(names)

    def _blobs(self, wanted: Pinned) -> frozenset[str]:
        """Return the ids of the files that a checkout of a snapshot, or the diff of a change, reads."""
        if isinstance(wanted, Change):
            return self._changed(wanted)
        return frozenset(entry.name for entry in self._files(wanted) if entry.kind == "blob")

    def _files(self, wanted: Snapshot) -> Iterator[_Entry]:
        """Yield the files of a snapshot, and its submodules."""
        for entry in self._entries(wanted.commit, wanted.roots):
            if entry.kind != "tree" and not wanted.leaves_out(entry.path):
                yield entry

    def _entries(self, commit: str, roots: Iterable[str]) -> Iterator[_Entry]:
        """Yield every entry below some paths of a commit."""
        for line in self.git("ls-tree", "-r", "-t", commit, "--", *filter(None, roots)).stdout.splitlines():
            described, path = line.split("\t")
            _, kind, name = described.split()
            yield _Entry(kind, name, path, line)

    def _changed(self, change: Change) -> frozenset[str]:
        """Return the ids of the blobs on either side of a change."""
        names = set()
        for line in self.git(*_COMPARE, "--raw", *self._ends(change.commit)).stdout.splitlines():
            before_mode, after_mode, before, after, _ = line.lstrip(":").split("\t")[0].split()
            names |= {name for name, mode in ((before, before_mode), (after, after_mode)) if mode != _GITLINK}
        return frozenset(names - {_NO_OBJECT})

    def _commits(self, wanted: Pinned) -> tuple[str, ...]:
        """Return the commits that `wanted` consists of."""
        if isinstance(wanted, Snapshot):
            return (wanted.commit,)
        return (*self._parents(wanted.commit)[:1], wanted.commit)

    def _ends(self, commit: str) -> tuple[str, str]:
        """Return the object that a commit is compared with, and the commit."""
        return next(iter(self._parents(commit)), EMPTY_TREE), commit

    def _parents(self, commit: str) -> tuple[str, ...]:
        """Return the parents written in the commit: git itself shows none where the history is cut."""
        if commit not in self._parents_of:  # asked for several times, and each is a process
            header = self.git("cat-file", "commit", commit).stdout.split("\n\n")[0]
            parents = (line.split()[1] for line in header.splitlines() if line.startswith("parent "))
            self._parents_of[commit] = tuple(parents)
        return self._parents_of[commit]


def is_commit(ref: str) -> bool:
    """Return whether a ref of sources.yaml is a full commit id."""
    return re.fullmatch(r"[0-9a-f]{40}", ref) is not None


def _pathspec(glob: str) -> str:
    return f":(glob){glob}"

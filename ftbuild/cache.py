"""The shared cache of git objects: one bare repository per source, filled by commit.

A store may be used by several builds at once and may have been left by one that was killed: whoever writes
holds the store's lock, and first removes what a dead writer left. Git itself only shows objects and refs
once they are complete. Whatever is asked for is checked for completeness before use, so nothing is fetched
twice, and what is missing for any reason is fetched again.

Histories are shallow and, where only part of a tree is needed, blobs are left out (partial clone,
https://git-scm.com/docs/partial-clone): the missing ones of the wanted folders are then fetched by id.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ftbuild.errors import PinError
from ftbuild.git import NO_REPOSITORY, git, last_line
from ftbuild.shell import CommandFailed, Result, redact

Report = Callable[[str], None]

# Git's id of the empty tree, which every repository knows: what a first commit is compared with.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# A name that no user's configuration has; its URL is given on every call, since mirrors change it.
_REMOTE = "ftbuild"
_REFS = "refs/ftbuild"
_UNLIMITED = 2**31 - 1  # what `git fetch --unshallow` means (git-fetch(1), Documentation/technical/shallow)
_LEAN = "--filter=blob:none"
_GITLINK = "160000"
_NO_OBJECT = "0" * 40
_PEELED = "^{}"
ANSWER_SECONDS = 60.0
_LEFTOVERS = ("*.lock", "refs/**/*.lock", "objects/**/tmp_*", "objects/**/.tmp-*")
# What a server says that does not serve a commit by its id, or does not have it.
_REFUSED = ("not our ref", "unadvertised object", "couldn't find remote ref", "has no refs/")
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
    """The tree of a commit, or only the folders `paths` of it. `ref` leads to it on a server without ids."""

    commit: str
    paths: tuple[str, ...] = ()
    ref: str | None = None

    depth = 1

    @property
    def partial(self) -> bool:
        """Whether blobs can stay behind."""
        return bool(self.paths)

    @property
    def roots(self) -> tuple[str, ...]:
        """The paths to walk; the empty one is the whole tree."""
        return self.paths or ("",)


@dataclass(frozen=True)
class Change:
    """What a commit changes against its first parent: both trees, and the files that differ."""

    commit: str

    ref = None
    depth = 2
    partial = True
    roots = ("",)


Wanted = Snapshot | Change


@dataclass(frozen=True)
class Packed:
    """Objects of a store as a pack file: the commits in it, and those of them whose history is cut."""

    file: Path
    commits: frozenset[str]
    cut: frozenset[str]


class Store:
    """The bare repository of one source."""

    def __init__(self, cache: Path, name: str, urls: Sequence[str]) -> None:
        """`urls` are tried in order; the first one and `name` decide the folder below `cache`."""
        self.name = name
        self.urls = tuple(urls)
        self.folder = (
            cache.absolute() / "git" / f"{name}-{hashlib.sha256(urls[0].encode()).hexdigest()[:8]}.git"
        )

    def resolve(self, refs: Collection[str]) -> dict[str, str]:
        """The commit each full ref leads to at the first URL that answers (annotated tags: what they tag).

        Raises PinError when no URL answers and knows them all.
        """
        failures = []
        for url in self.urls:
            try:
                patterns = [pattern for ref in refs for pattern in (ref, ref + _PEELED)]
                listing = git("ls-remote", url, *patterns, env=NO_REPOSITORY, timeout=ANSWER_SECONDS).stdout
            except CommandFailed as failed:
                failures.append(f"{redact(url)}: {last_line(failed)}")
                continue
            found = {name: commit for commit, name in (line.split("\t") for line in listing.splitlines())}
            absent = [ref for ref in refs if ref not in found]
            if not absent:
                return {ref: found.get(ref + _PEELED, found[ref]) for ref in refs}
            failures.append(f"{redact(url)}: has no {', '.join(absent)}")
        raise self._unobtainable(f"the refs of {self.name} cannot be resolved", failures)

    def obtain(self, wanted: Wanted, report: Report) -> None:
        """Fetch what is missing of `wanted`; without network when it is all there.

        Raises PinError when no URL gives it, HostError on a full disk.
        """
        if self.holds(wanted):
            return
        with self.writing(report):
            if not self.holds(wanted):
                self._fetch(wanted, report)

    def holds(self, wanted: Wanted) -> bool:
        """Whether every object of `wanted` is here."""
        return self.folder.is_dir() and self._missing(wanted) == frozenset()

    def tree(self, commit: str) -> str:
        """The id of the tree of a commit that is here."""
        return self._git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.strip()

    def diff(self, commit: str, file: Path, globs: Sequence[str] = ()) -> None:
        """Write to `file` what `commit` changes, in a form that no git setting alters.

        Written by git, since a diff may hold bytes that are no text. `globs` as in gitglossary(7), magic
        `glob`; none: all of it.
        """
        specs = map(_pathspec, globs)
        self._git(*_COMPARE, *_AS_PATCH, f"--output={file}", *self._ends(commit), "--", *specs)

    def changes_any(self, commit: str, glob: str) -> bool:
        """Whether `commit` changes a file that `glob` matches."""
        return bool(self._git(*_COMPARE, "--name-only", *self._ends(commit), "--", _pathspec(glob)).stdout)

    def checkout(self, wanted: Snapshot, destination: Path) -> None:
        """Write the files of `wanted` into `destination`: modes kept, submodules empty folders, no `.git`."""
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
            env = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_WORK_TREE": str(destination.absolute())}
            self._git("read-tree", "--empty", env=env)
            for path in wanted.roots:
                prefix = [f"--prefix={path}/"] if path else []
                self._git("read-tree", *prefix, f"{wanted.commit}:{path}", env=env)
            self._git("checkout-index", "--all", "--force", "--quiet", cwd=destination, env=env)

    def pack(self, wanted: Iterable[Wanted], folder: Path) -> Packed:
        """Write the objects of `wanted`, which are here, as one pack file into `folder`."""
        objects = frozenset().union(*(self._objects(want) for want in wanted))
        commits = frozenset(commit for want in wanted for commit in self._commits(want))
        cut = frozenset(c for c in commits if not commits.issuperset(self._parents(c)))
        listing = "".join(f"{name}\n" for name in sorted(objects))
        digest = self._git("pack-objects", "--quiet", str(folder / "pack"), stdin=listing).stdout.strip()
        return Packed(folder / f"pack-{digest}.pack", commits, cut)

    def unpack(self, packed: Packed, report: Report) -> None:
        """Take in a pack file; CommandFailed when it is not whole."""
        with self.writing(report):
            folder = self.folder / "objects" / "pack"
            fresh = folder / "tmp_ftbuild.pack"
            shutil.copyfile(packed.file, fresh)
            digest = self._git("index-pack", str(fresh)).stdout.split()[-1]
            name = folder / f"pack-{digest}"
            name.with_suffix(".promisor").touch()  # objects beyond the wanted ones are left out
            fresh.rename(name.with_suffix(".pack"))
            fresh.with_suffix(".idx").rename(name.with_suffix(".idx"))
            shallow = self.folder / "shallow"
            known = shallow.read_text().split() if shallow.exists() else []
            replace(shallow, "".join(f"{commit}\n" for commit in sorted(packed.cut.union(known))))
            for commit in packed.commits:
                self._pin(commit)

    @contextmanager
    def writing(self, report: Report) -> Iterator[None]:
        """Hold the store alone, made and tidied."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(f"{self.name}: waiting for another build that fetches it")
            lock.acquire()
        try:
            self._tidy()
            yield
        finally:
            lock.release()

    def _tidy(self) -> None:
        """Remove what a killed writer left (we hold the lock, so nobody owns it), and make the repository."""
        for pattern in _LEFTOVERS:
            for leftover in self.folder.glob(pattern):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        git("init", "--bare", "--quiet", "--template=", str(self.folder))
        attributes = self.folder / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text(_ATTRIBUTES)

    def _fetch(self, wanted: Wanted, report: Report) -> None:
        failures = []
        for url in self.urls:
            report(f"{self.name}: fetching {wanted.commit[:12]} from {redact(url)}")
            try:
                self._fetch_from(url, wanted)
            except CommandFailed as failed:
                failures.append(f"{redact(url)}: {last_line(failed)}")
                continue
            if self.holds(wanted):
                self._pin(wanted.commit)
                return
            failures.append(f"{redact(url)}: the commit lacks {', '.join(wanted.roots) or 'objects'}")
        raise self._unobtainable(f"commit {wanted.commit} of {self.name} cannot be fetched", failures)

    def _fetch_from(self, url: str, wanted: Wanted) -> None:
        """The commits with their trees, then the blobs that a partial fetch left behind."""
        if self._missing(wanted) is None:
            try:
                self._remote(
                    url,
                    _LEAN if wanted.partial else "--no-filter",
                    f"--depth={wanted.depth}",
                    f"+{wanted.commit}:{_REFS}/{wanted.commit}",
                )
            except CommandFailed as failed:
                if not refused(failed.result.stderr):
                    raise
                self._fetch_history(url, wanted, failed)
        if missing := self._missing(wanted):
            self._remote(url, _LEAN, "--stdin", stdin="".join(f"{name}\n" for name in sorted(missing)))

    def _fetch_history(self, url: str, wanted: Wanted, refusal: CommandFailed) -> None:
        """For a server that serves no commit by its id: the whole history of its ref, or of all refs."""
        refs = [wanted.ref] if wanted.ref and not is_commit(wanted.ref) else ["refs/heads/*", "refs/tags/*"]
        specs = [f"+{ref}:{ref.replace('refs', _REFS, 1)}" for ref in refs]
        self._remote(url, "--no-filter", f"--depth={_UNLIMITED}", *specs)
        if self._git("cat-file", "-e", wanted.commit, check=False).code:
            raise refusal

    def _remote(self, url: str, *arguments: str, stdin: str | None = None) -> None:
        # Nothing is offered as already here (noop): a tree of which we only have a part would count as whole.
        self._git(
            *("-c", f"remote.{_REMOTE}.url={url}", "-c", "fetch.negotiationAlgorithm=noop"),
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", _REMOTE),
            *arguments,
            stdin=stdin,
        )

    def _pin(self, commit: str) -> None:
        """Keep a commit from being pruned, should a user run `git gc` here."""
        self._git("update-ref", f"{_REFS}/{commit}", commit)

    def _missing(self, wanted: Wanted) -> frozenset[str] | None:
        """Ids of the objects of `wanted` that are not here; None when not even its commits and trees are."""
        try:
            roots = [f"{c}:{path}" for c in self._commits(wanted) for path in wanted.roots]
            walk = self._git("rev-list", "--objects", "--no-object-names", "--missing=print", *roots).stdout
            missing = frozenset(line[1:] for line in walk.splitlines() if line.startswith("?"))
            if missing and isinstance(wanted, Change):
                missing &= self._changed(wanted)
        except CommandFailed:
            return None
        return missing

    def _objects(self, wanted: Wanted) -> frozenset[str]:
        """Ids of all that a checkout of a snapshot, or the diff of a change, reads."""
        names = set()
        blobs = self._changed(wanted) if isinstance(wanted, Change) else None
        for commit in self._commits(wanted):
            names |= {commit, self.tree(commit)}
            listing = self._git("ls-tree", "-r", "-t", commit, "--", *filter(None, wanted.roots)).stdout
            for line in listing.splitlines():
                _, kind, name = line.split("\t")[0].split()
                if kind == "tree" or (kind == "blob" and (blobs is None or name in blobs)):
                    names.add(name)
        return frozenset(names)

    def _changed(self, change: Change) -> frozenset[str]:
        """Ids of the blobs on either side of a change."""
        names = set()
        for line in self._git(*_COMPARE, "--raw", *self._ends(change.commit)).stdout.splitlines():
            before_mode, after_mode, before, after, _ = line.lstrip(":").split("\t")[0].split()
            names |= {name for name, mode in ((before, before_mode), (after, after_mode)) if mode != _GITLINK}
        return frozenset(names - {_NO_OBJECT})

    def _commits(self, wanted: Wanted) -> tuple[str, ...]:
        """The commits that `wanted` is made of."""
        if isinstance(wanted, Snapshot):
            return (wanted.commit,)
        return (*self._parents(wanted.commit)[:1], wanted.commit)

    def _ends(self, commit: str) -> tuple[str, str]:
        """What a commit is compared with, and the commit."""
        return next(iter(self._parents(commit)), EMPTY_TREE), commit

    def _parents(self, commit: str) -> tuple[str, ...]:
        """The parents as written in the commit: git itself shows none where the history is cut."""
        header = self._git("cat-file", "commit", commit).stdout.split("\n\n")[0]
        return tuple(line.split()[1] for line in header.splitlines() if line.startswith("parent "))

    def _unobtainable(self, what: str, failures: Sequence[str]) -> PinError:
        if any(refused(failure) for failure in failures):
            hint = (
                "upstream dropped or moved it: add a mirror that has it to sources.yaml, or run invoke lock"
            )
        else:
            hint = (
                "check network, proxy (https_proxy) and CA (git config http.sslCAInfo), add a mirror to "
                "sources.yaml, or use --sources with a file of invoke bundle"
            )
        return PinError(what, where="; ".join(failures), hint=hint)

    def _git(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> Result:
        return git(
            *arguments,
            cwd=cwd or self.folder,
            env={"GIT_DIR": str(self.folder), **(env or {})},
            stdin=stdin,
            check=check,
        )


def is_commit(ref: str) -> bool:
    """Whether a ref of sources.yaml is a full commit id."""
    return re.fullmatch(r"[0-9a-f]{40}", ref) is not None


def refused(message: str) -> bool:
    """Whether a server answered, but does not have a commit or ref, or does not serve it."""
    return any(word in message for word in _REFUSED)


def replace(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def _pathspec(glob: str) -> str:
    return f":(glob){glob}"

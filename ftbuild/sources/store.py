"""The shared cache of git objects: one bare repository per source, filled by commit.

A store may be used by several builds at once and may have been left by one that was killed. So git never
fetches into it: every transfer goes to a repository of its own inside the store, and only when that holds
everything asked for do its packs move over, under the store's lock. A git that outlives its killed parent
writes where nobody looks. Whatever is asked for is checked for completeness first: nothing is fetched
twice, and what is missing for any reason is fetched again.

Histories are cut and, where only part of a tree is needed, blobs are left out (partial clone,
https://git-scm.com/docs/partial-clone): those of the wanted folders are then fetched by id.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from ftbuild.errors import PinError
from ftbuild.host.git import NO_REPOSITORY, git, last_line
from ftbuild.host.shell import CommandFailed, Result, redact
from ftbuild.text.reporter import Reporter

T = TypeVar("T")

# Git's id of the empty tree, which every repository knows: what a first commit is compared with.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# A name that no user's configuration has; its URL is given on every call, since mirrors change it.
_REMOTE = "ftbuild"
_LEAN = "--filter=blob:none"
_GITLINK = "160000"
_NO_OBJECT = "0" * 40
_PEELED = "^{}"
ANSWER_SECONDS = 60.0
_INCOMING = "incoming-"
# What git says of a server that does not have a commit or ref, or serves none by its id.
_REFUSED = ("not our ref", "unadvertised object", "couldn't find remote ref")
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
        """Whether blobs can stay behind."""
        return bool(self.paths or self.without)

    @property
    def roots(self) -> tuple[str, ...]:
        """The paths to walk; the empty one is the whole tree."""
        return self.paths or ("",)

    def leaves_out(self, path: str) -> bool:
        """Whether a file of the tree is not wanted."""
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.without)


@dataclass(frozen=True)
class Change:
    """What a commit changes against its first parent: both trees, and the files that differ."""

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

    def holds(self, wanted: Pinned) -> bool:
        """Whether every object of `wanted` is here."""
        return self.folder.is_dir() and self.missing(wanted) == frozenset()

    def missing(self, wanted: Pinned) -> frozenset[str] | None:
        """Ids of the blobs of `wanted` that are not here; None when not even its commits and trees are."""
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
        """The id of the tree of a commit that is here."""
        return self.git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.strip()

    def diff(self, commit: str, file: Path, globs: Sequence[str] = ()) -> None:
        """Write to `file` what `commit` changes, in a form that no git setting alters.

        Written by git, since a diff may hold bytes that are no text. `globs` as in gitglossary(7), magic
        `glob`; none: all of it.
        """
        specs = map(_pathspec, globs)
        self.git(*_COMPARE, *_AS_PATCH, f"--output={file}", *self._ends(commit), "--", *specs)

    def changes_any(self, commit: str, glob: str) -> bool:
        """Whether `commit` changes a file that `glob` matches."""
        return bool(self.git(*_COMPARE, "--name-only", *self._ends(commit), "--", _pathspec(glob)).stdout)

    def checkout(self, wanted: Snapshot, destination: Path) -> None:
        """Write the files of `wanted` into `destination`: modes kept, submodules empty folders, no `.git`."""
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
            env = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_WORK_TREE": str(destination.absolute())}
            index = "".join(f"{entry.line}\n" for entry in self._files(wanted))
            self.git("update-index", "--index-info", env=env, stdin=index)
            self.git("checkout-index", "--all", "--force", "--quiet", cwd=destination, env=env)

    def pack(self, wanted: Iterable[Pinned], folder: Path) -> Path:
        """All objects of `wanted`, which are here, as one pack file in `folder` (on the same disk)."""
        names = frozenset().union(*(self._objects(want) for want in wanted))
        listing = "".join(f"{name}\n" for name in sorted(names))
        digest = self.git("pack-objects", "--quiet", str(folder / "pack"), stdin=listing).stdout.strip()
        return folder / f"pack-{digest}.pack"

    def index(self, pack: IO[bytes]) -> None:
        """Take in a pack; CommandFailed when it is not whole."""
        mine = self.folder / "objects" / "pack" / "incoming.pack"
        with mine.open("wb") as file:
            shutil.copyfileobj(pack, file)
        digest = self.git("index-pack", str(mine)).stdout.split()[-1]
        mine.rename(mine.with_name(f"pack-{digest}.pack"))
        mine.with_suffix(".idx").rename(mine.with_name(f"pack-{digest}.idx"))

    def make(self) -> None:
        """Make the repository, or complete one whose making was cut short."""
        git("init", "--bare", "--quiet", "--template=", "--object-format=sha1", str(self.folder))
        # The objects hang on no ref: whoever runs `git gc` here must not lose them.
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

    def _objects(self, wanted: Pinned) -> frozenset[str]:
        """Ids of all that a checkout of a snapshot, or the diff of a change, reads."""
        names = set(self._blobs(wanted))
        for commit in self._commits(wanted):
            names |= {commit, self.tree(commit)}
            names |= {entry.name for entry in self._entries(commit, wanted.roots) if entry.kind == "tree"}
        return frozenset(names)

    def _blobs(self, wanted: Pinned) -> frozenset[str]:
        """Ids of the files that a checkout of a snapshot, or the diff of a change, reads."""
        if isinstance(wanted, Change):
            return self._changed(wanted)
        return frozenset(entry.name for entry in self._files(wanted) if entry.kind == "blob")

    def _files(self, wanted: Snapshot) -> Iterator[_Entry]:
        """The files of a snapshot, and its submodules."""
        for entry in self._entries(wanted.commit, wanted.roots):
            if entry.kind != "tree" and not wanted.leaves_out(entry.path):
                yield entry

    def _entries(self, commit: str, roots: Iterable[str]) -> Iterator[_Entry]:
        """Everything below some paths of a commit."""
        for line in self.git("ls-tree", "-r", "-t", commit, "--", *filter(None, roots)).stdout.splitlines():
            described, path = line.split("\t")
            _, kind, name = described.split()
            yield _Entry(kind, name, path, line)

    def _changed(self, change: Change) -> frozenset[str]:
        """Ids of the blobs on either side of a change."""
        names = set()
        for line in self.git(*_COMPARE, "--raw", *self._ends(change.commit)).stdout.splitlines():
            before_mode, after_mode, before, after, _ = line.lstrip(":").split("\t")[0].split()
            names |= {name for name, mode in ((before, before_mode), (after, after_mode)) if mode != _GITLINK}
        return frozenset(names - {_NO_OBJECT})

    def _commits(self, wanted: Pinned) -> tuple[str, ...]:
        """The commits that `wanted` is made of."""
        if isinstance(wanted, Snapshot):
            return (wanted.commit,)
        return (*self._parents(wanted.commit)[:1], wanted.commit)

    def _ends(self, commit: str) -> tuple[str, str]:
        """What a commit is compared with, and the commit."""
        return next(iter(self._parents(commit)), EMPTY_TREE), commit

    def _parents(self, commit: str) -> tuple[str, ...]:
        """The parents as written in the commit: git itself shows none where the history is cut."""
        header = self.git("cat-file", "commit", commit).stdout.split("\n\n")[0]
        return tuple(line.split()[1] for line in header.splitlines() if line.startswith("parent "))


class Store(Objects):
    """The objects of one source, shared by all builds, and the URLs that fill it."""

    def __init__(self, cache: Path, name: str, urls: Sequence[str]) -> None:
        """`urls` are tried in order; the first one and `name` decide the folder below `cache`."""
        digest = hashlib.sha256(urls[0].encode()).hexdigest()[:8]
        super().__init__(cache.absolute() / "git" / f"{name}-{digest}.git")
        self.name = name
        self.urls = tuple(urls)

    def resolve(self, refs: Collection[str]) -> dict[str, str]:
        """The commit each full ref leads to at the first URL that answers (annotated tags: what they tag).

        Raises PinError when no URL answers and knows them all.
        """

        def ask(url: str) -> dict[str, str]:
            found = resolve_refs(url, refs, ANSWER_SECONDS)
            if absent := [ref for ref in refs if ref not in found]:
                raise _Lacking(", ".join(absent))
            return found

        return self._first_answer(f"the refs of {self.name} cannot be resolved", ask)

    def obtain(self, wanted: Pinned, report: Reporter) -> None:
        """Fetch `wanted` unless it is all here, which takes no network.

        Raises PinError when no URL gives it, HostError on a full disk.
        """

        def ask(url: str) -> None:
            report(f"{self.name}: fetching {wanted.commit[:12]} from {redact(url)}")
            try:
                with self._incoming() as incoming:
                    _fetch_by_id(url, wanted, incoming)
            except CommandFailed as failed:
                if not _refused(failed):
                    raise
                with self._incoming() as incoming:
                    _fetch_history(url, wanted, incoming)
            if not self.holds(wanted):
                raise _Lacking(" ".join([wanted.commit, *filter(None, wanted.roots)]))

        if self.holds(wanted):
            return
        with self._alone(report):
            if not self.holds(wanted):
                self._first_answer(f"commit {wanted.commit} of {self.name} cannot be fetched", ask)

    def unpack(self, pack: IO[bytes], report: Reporter) -> None:
        """Take in a pack; CommandFailed when it is not whole."""
        with self._alone(report), self._incoming() as incoming:
            incoming.index(pack)

    @contextmanager
    def packed(self, wanted: Iterable[Pinned], report: Reporter) -> Iterator[Path]:
        """All objects of `wanted`, which are here, as one pack file for as long as the context lasts."""
        with self._alone(report), tempfile.TemporaryDirectory(prefix=_INCOMING, dir=self.folder) as scratch:
            yield self.pack(wanted, Path(scratch))

    @contextmanager
    def _alone(self, report: Reporter) -> Iterator[None]:
        """Hold the store alone, made, and without what a killed process left in it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(f"{self.name}: waiting for another build that uses it")
            lock.acquire()
        try:
            for leftover in self.folder.glob("*.lock"):
                leftover.unlink()
            for leftover in self.folder.glob(f"{_INCOMING}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            self.make()
            yield
        finally:
            lock.release()

    @contextmanager
    def _incoming(self) -> Iterator[Objects]:
        """A repository of its own to fetch into; what it holds at the end becomes the store's."""
        with tempfile.TemporaryDirectory(prefix=_INCOMING, dir=self.folder) as scratch:
            incoming = Objects(Path(scratch))
            incoming.make()
            yield incoming
            for suffix in (".pack", ".idx"):  # git looks for the index, so that comes last
                for file in incoming.folder.glob(f"objects/pack/*{suffix}"):
                    file.rename(self.folder / "objects" / "pack" / file.name)

    def _first_answer(self, what: str, ask: Callable[[str], T]) -> T:
        """What the first URL answers that can; PinError with what each of them says when none can."""
        failures, answered = [], False
        for url in self.urls:
            try:
                return ask(url)
            except CommandFailed as failed:
                answered |= _refused(failed)
                failures.append(f"{redact(url)}: {last_line(failed)}")
            except _Lacking as lacking:
                answered = True
                failures.append(f"{redact(url)}: has no {lacking}")
        if answered:
            hint = (
                "upstream dropped or moved it: add a mirror that has it to sources.yaml, or run invoke lock"
            )
        else:
            hint = (
                "check network, proxy (https_proxy) and CA (git config http.sslCAInfo), add a mirror to "
                "sources.yaml, or use --sources with a file of invoke bundle"
            )
        raise PinError(what, where="; ".join(failures), hint=hint)


class _Lacking(Exception):
    """A repository answers, but lacks what is named."""


def _fetch_by_id(url: str, wanted: Pinned, incoming: Objects) -> None:
    """The commits with their trees, then the blobs that a partial fetch left behind."""
    blobs = _LEAN if wanted.partial else "--no-filter"
    _fetch(url, incoming, blobs, f"--depth={wanted.depth}", f"+{wanted.commit}:refs/heads/wanted")
    if missing := incoming.missing(wanted):
        listing = "".join(f"{name}\n" for name in sorted(missing))
        _fetch(url, incoming, _LEAN, "--stdin", stdin=listing)


def _fetch_history(url: str, wanted: Pinned, incoming: Objects) -> None:
    """For a server that serves no ids: everything that leads to the ref, or to any ref."""
    refs = [wanted.ref] if wanted.ref and not is_commit(wanted.ref) else ["refs/heads/*", "refs/tags/*"]
    _fetch(url, incoming, *(f"+{ref}:{ref.replace('refs/', 'refs/history/', 1)}" for ref in refs))


def _fetch(url: str, incoming: Objects, *arguments: str, stdin: str | None = None) -> None:
    settings = {
        f"remote.{_REMOTE}.url": url,
        "fetch.negotiationAlgorithm": "noop",  # offer nothing: of what is here, some parts may be left out
        "fetch.unpackLimit": "1",  # always a pack
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    options = ("--quiet", "--no-tags", "--no-write-fetch-head")
    incoming.git(*words, "fetch", *options, _REMOTE, *arguments, stdin=stdin)


def resolve_refs(url: str, refs: Collection[str], timeout: float) -> dict[str, str]:
    """Ref -> commit at one URL, for those of the full refs that are there (annotated tags: what they tag).

    `timeout` is in seconds. Raises CommandFailed when the URL does not answer.
    """
    patterns = [pattern for ref in refs for pattern in (ref, ref + _PEELED)] or ["HEAD"]
    listing = git("ls-remote", url, *patterns, env=NO_REPOSITORY, timeout=timeout).stdout
    found = {name: commit for commit, name in (line.split("\t") for line in listing.splitlines())}
    return {ref: found.get(ref + _PEELED, found[ref]) for ref in refs if ref in found}


def is_commit(ref: str) -> bool:
    """Whether a ref of sources.yaml is a full commit id."""
    return re.fullmatch(r"[0-9a-f]{40}", ref) is not None


def _refused(failed: CommandFailed) -> bool:
    """Whether a server answered, but does not have a commit, or does not serve it by its id."""
    return any(words in failed.result.stderr for words in _REFUSED)


def _pathspec(glob: str) -> str:
    return f":(glob){glob}"

"""The shared cache of git objects: one bare repository per source, filled by commit.

A store may be used by several builds at once and may have been left by one that was killed. So git never
fetches into it: every transfer goes to a repository of its own inside the store, and only when that holds
everything asked for do its packs move over, under the store's lock. A git that outlives its killed parent
writes into a folder that the next user of the store removes. Completeness is checked first: nothing is
fetched twice, and whatever is missing is fetched again.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TypeVar

from filelock import Timeout

from ftbuild.errors import PinError
from ftbuild.host import locks
from ftbuild.host.git import NO_REPOSITORY, REMOTE, git, last_line, remote
from ftbuild.host.redaction import redact
from ftbuild.host.shell import CommandFailed
from ftbuild.sources.objects import Change, Objects, Pinned, is_commit
from ftbuild.text.reporter import Reporter

T = TypeVar("T")

_LEAN = "--filter=blob:none"
_PEELED = "^{}"
ANSWER_SECONDS = 60.0
_INCOMING = "incoming-"
# Git's messages for a server that lacks a commit or ref, or serves none by its id.
_REFUSED = ("not our ref", "unadvertised object", "couldn't find remote ref")


class Store(Objects):
    """The objects of one source, shared by all builds, and the URLs that fill it."""

    def __init__(self, cache: Path, name: str, urls: Sequence[str]) -> None:
        """`urls` are tried in order; the first one and `name` decide the folder below `cache`."""
        digest = hashlib.sha256(urls[0].encode()).hexdigest()[:8]
        super().__init__(cache.absolute() / "git" / f"{name}-{digest}.git")
        self.name = name
        self.urls = tuple(urls)

    def resolve(self, refs: Collection[str]) -> dict[str, str]:
        """Return the commit of each full ref at the first URL that answers; annotated tags are peeled.

        Raises PinError when no URL answers and knows them all.
        """

        def ask(url: str) -> dict[str, str]:
            found = resolve_refs(url, refs, ANSWER_SECONDS)
            if absent := [ref for ref in refs if ref not in found]:
                raise _Lacking(", ".join(absent))
            return found

        return self._first_answer(lambda: f"the refs of {self.name} cannot be resolved", ask)

    def change(self, commit: str, report: Reporter) -> tuple[str, str, bytes]:
        """Fetch the change of a commit; return its tree, `sha256:` and digest of its diff, and the diff."""
        self.obtain([Change(commit)], report)
        diff = self.read_diff(commit)
        return self.tree(commit), f"sha256:{hashlib.sha256(diff).hexdigest()}", diff

    def read_diff(self, commit: str, paths: Sequence[str] = ()) -> bytes:
        """Return the diff of a commit that is here, of `paths` (none: all) only."""
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
            file = Path(scratch, "diff")
            self.diff(commit, file, paths)
            return file.read_bytes()

    def obtain(self, wanted: Collection[Pinned], report: Reporter) -> None:
        """Fetch those of `wanted` that are not all here, together; where none is lacking, without a network.

        Raises PinError when no URL gives them, HostError on a full disk.
        """

        def ask(url: str) -> None:
            lacking = self._lacking(wanted)
            report(f"{self.name}: fetching {_commits(lacking, 12)} from {redact(url)}")
            if not self._served(url, lacking):
                for want in lacking:
                    alone = len(lacking) == 1
                    if not self.holds(want) and (alone or not self._served(url, [want])):
                        with self._incoming() as incoming:
                            _fetch_history(url, want, incoming)
            if lacking := self._lacking(lacking):
                raise _Lacking(
                    " ".join(" ".join([want.commit, *filter(None, want.roots)]) for want in lacking)
                )

        if not self._lacking(wanted):
            return
        with self._alone(report):
            if self._lacking(wanted):
                self._first_answer(
                    lambda: f"{_commits(self._lacking(wanted))} of {self.name} cannot be fetched", ask
                )

    def _lacking(self, wanted: Collection[Pinned]) -> list[Pinned]:
        return [want for want in wanted if not self.holds(want)]

    def _served(self, url: str, wanted: Collection[Pinned]) -> bool:
        """Fetch by id; return False when the server refuses one of them, and then none is here."""
        try:
            with self._incoming() as incoming:
                _fetch_by_id(url, wanted, incoming)
        except CommandFailed as failed:
            if not _refused(failed):
                raise
            return False
        return True

    def unpack(self, pack: IO[bytes], report: Reporter) -> None:
        """Add a pack; CommandFailed when it is incomplete."""
        with self._alone(report), self._incoming() as incoming:
            incoming.index(pack)

    @contextmanager
    def packed(self, wanted: Iterable[Pinned], report: Reporter) -> Iterator[Path]:
        """Yield one pack file with all objects of `wanted`, which are here; it is removed at the end."""
        with self._alone(report), tempfile.TemporaryDirectory(prefix=_INCOMING, dir=self.folder) as scratch:
            yield self.pack(wanted, Path(scratch))

    def shrink(self, wanted: Iterable[Pinned]) -> bool:
        """Keep the objects of `wanted` only; return False, and do nothing, while another command uses it.

        A build that reads meanwhile finds what it needs in the new pack, or fetches it again.
        """
        with self._alone(print, wait=False) as alone:
            if not alone:
                return False
            packs = self.folder / "objects" / "pack"
            before = set(packs.iterdir())
            with tempfile.TemporaryDirectory(prefix=_INCOMING, dir=self.folder) as scratch:
                if names := self.needed(wanted):
                    pack = self._packed(names, Path(scratch))
                    for file in (pack, pack.with_suffix(".idx")):
                        file.rename(packs / file.name)
                        before.discard(packs / file.name)
            for old in before:
                old.unlink(missing_ok=True)
            return True

    @contextmanager
    def _alone(self, report: Reporter, *, wait: bool = True) -> Iterator[bool]:
        """Lock the store, creating it if need be and removing what a killed process left in it.

        Unless it has to `wait`, it may yield False: another command has the lock.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        file, waiting = (
            self.folder.with_suffix(".lock"),
            f"{self.name}: waiting for another build that uses it",
        )
        with ExitStack() as lock:
            try:
                lock.enter_context(
                    locks.held(file, report, waiting, patience=-1 if wait else 0, threads=True)
                )
            except Timeout:
                yield False
                return
            for leftover in self.folder.glob("*.lock"):
                leftover.unlink()
            for leftover in self.folder.glob(f"{_INCOMING}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            self.make()
            yield True

    @contextmanager
    def _incoming(self) -> Iterator[Objects]:
        """Yield a repository to fetch into; its objects become the store's at the end."""
        with tempfile.TemporaryDirectory(prefix=_INCOMING, dir=self.folder) as scratch:
            incoming = Objects(Path(scratch))
            incoming.make()
            yield incoming
            for suffix in (".pack", ".idx"):  # git looks for the index, so that comes last
                for file in incoming.folder.glob(f"objects/pack/*{suffix}"):
                    file.rename(self.folder / "objects" / "pack" / file.name)

    def _first_answer(self, what: Callable[[], str], ask: Callable[[str], T]) -> T:
        """Return the answer of the first URL that has one; PinError with the error of each when none has.

        `what` is asked for the error's sentence after that.
        """
        failures, answered = [], False
        for url in self.urls:
            try:
                return ask(url)
            except CommandFailed as failed:
                answered |= _refused(failed)
                failures.append(f"{redact(url)}: {last_line(failed)}")
            except _Lacking as lacking:
                answered = True
                failures.append(f"{redact(url)}: lacks {lacking}")
        if answered:
            hint = (
                "upstream dropped or moved it: add a mirror that has it to sources.yaml, or run invoke lock"
            )
        elif missing := _missing_folders(self.urls):
            hint = (
                f"{missing} does not exist; `invoke demo` makes the repositories of the sample stack. "
                "Others: mend the URL in sources.yaml, add a mirror, or use --sources with a file of invoke "
                "bundle"
            )
        else:
            hint = (
                "check network, proxy (https_proxy) and CA (git config http.sslCAInfo), add a mirror to "
                "sources.yaml, or use --sources with a file of invoke bundle"
            )
        raise PinError(what(), where="; ".join(failures), hint=hint)


def _missing_folders(urls: Iterable[str]) -> str:
    """Return the folders that the URLs are, if all are folders that are not there; empty otherwise."""
    places = [Path(url.removeprefix("file://")) for url in urls]
    absent = [place for place in places if place.is_absolute() and not place.exists()]
    return ", ".join(map(str, absent)) if len(absent) == len(places) else ""


class _Lacking(Exception):
    """A repository answers, but lacks the named objects."""


def _commits(wanted: Collection[Pinned], length: int | None = None) -> str:
    """Return the commit that is wanted, by its first characters, or the number of commits."""
    names = list(dict.fromkeys(want.commit for want in wanted))
    return f"commit {names[0][:length]}" if len(names) == 1 else f"{len(names)} commits"


def _fetch_by_id(url: str, wanted: Collection[Pinned], incoming: Objects) -> None:
    """Fetch the commits with their trees, all at a time, then the blobs that a partial fetch left out.

    A server tells the names of blobs by their trees alone, so that two transfers are the least.
    """
    for partial, blobs in ((True, _LEAN), (False, "--no-filter")):
        if some := [want for want in wanted if want.partial == partial]:
            depth = max(want.depth for want in some)
            refs = dict.fromkeys(f"+{want.commit}:refs/wanted/{want.commit}" for want in some)
            _fetch(url, incoming, blobs, f"--depth={depth}", *refs)
    missing = frozenset[str]().union(*(incoming.missing(want) or () for want in wanted))
    if missing:
        listing = "".join(f"{name}\n" for name in sorted(missing))
        _fetch(url, incoming, _LEAN, "--stdin", stdin=listing)


def _fetch_history(url: str, wanted: Pinned, incoming: Objects) -> None:
    """Fetch the history of the ref, or of all refs, from a server that serves no ids."""
    refs = [wanted.ref] if wanted.ref and not is_commit(wanted.ref) else ["refs/heads/*", "refs/tags/*"]
    _fetch(url, incoming, *(f"+{ref}:{ref.replace('refs/', 'refs/history/', 1)}" for ref in refs))


def _fetch(url: str, incoming: Objects, *arguments: str, stdin: str | None = None) -> None:
    settings = {
        "fetch.negotiationAlgorithm": "noop",  # offer nothing: of what is here, some parts may be left out
        "fetch.unpackLimit": "1",  # always a pack
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    options = ("--quiet", "--no-tags", "--no-write-fetch-head")
    incoming.git(*words, "fetch", *options, REMOTE, *arguments, env=remote(url), stdin=stdin)


def resolve_refs(url: str, refs: Collection[str], timeout: float) -> dict[str, str]:
    """Return ref -> commit at one URL, for the full refs that exist there; annotated tags are peeled.

    `timeout` is in seconds. Raises CommandFailed when the URL does not answer.
    """
    patterns = [pattern for ref in refs for pattern in (ref, ref + _PEELED)] or ["HEAD"]
    env = {**NO_REPOSITORY, **remote(url)}
    listing = git("ls-remote", REMOTE, *patterns, env=env, timeout=timeout).stdout
    found = {name: commit for commit, name in (line.split("\t") for line in listing.splitlines())}
    return {ref: found.get(ref + _PEELED, found[ref]) for ref in refs if ref in found}


def _refused(failed: CommandFailed) -> bool:
    """Return whether a server answered, but lacks a commit or does not serve it by its id."""
    return any(words in failed.result.stderr for words in _REFUSED)

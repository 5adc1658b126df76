"""The shared store of downloaded files, each under the sha256 that pins it: `FTBUILD_CACHE/files/<sha256>`.

A file is checked while it is written and takes its name only when it is right, so several builds may use the
store at once, and a killed one leaves nothing wrong behind. What is there is read again before it is used: a
damaged file is fetched anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from ftbuild import __version__
from ftbuild.errors import HostError, Interrupted, PinError
from ftbuild.host import disk, locks
from ftbuild.host.redaction import redact
from ftbuild.text import terminal, units
from ftbuild.text.reporter import Pace, Reporter

FOLDER = "files"
AT_ONCE = 4
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
# A body that breaks off is continued where it ended.
TRIES = 4
# A base has some 300 files, most of them small: of more than a few, only large ones have a line of their own.
FEW, LARGE_BYTES = 10, 20_000_000
# A build that has looked for its files needs them for hours at most.
KEPT_SECONDS = 86400.0
_CHUNK = 1 << 16
_BUSY = (429, 500, 502, 503, 504)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORED = re.compile(r"([0-9a-f]{64})(?:\.partial)?")
_PARTIAL, _RANGE_REFUSED = 206, 416
_CAUSES = re.compile(r"failed to resolve|name or service not known|connection refused|timed out", re.I)


@dataclass(frozen=True)
class Download:
    """A file to fetch: its name, the sha256 that it must have, URLs to try in order, its size if known."""

    name: str
    sha256: str
    urls: tuple[str, ...] = ()
    size: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no sha256 or no plain file name, since both become paths."""
        if not _SHA256.fullmatch(self.sha256):
            raise PinError(f"{self.name} is not pinned by a sha256 of 64 hex digits", where=self.sha256)
        if self.name in ("", ".", "..") or "/" in self.name or "\0" in self.name:
            raise PinError("a downloaded file has no plain name", where=self.name)


def fetch_all(
    downloads: Iterable[Download], cache: Path, report: Reporter = print, *, ca: Path | None = None
) -> dict[str, Path]:
    """Bring files into the store, several at once; return sha256 -> path of each.

    Needs no network for what the store has. `ca` is trusted instead of the system's CAs. Raises PinError when
    no URL gives the bytes that a sha256 names, HostError when the store cannot be written.
    """
    wanted = {download.sha256: download for download in downloads}
    absent = [download for download in wanted.values() if not place(download.sha256, cache).exists()]
    fetcher = _Fetcher(cache, report, ca, absent)
    with _writable(cache), fetcher.http, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            running = {sha256: pool.submit(fetcher.fetch, download) for sha256, download in wanted.items()}
            for done in wait(running.values(), return_when=FIRST_EXCEPTION).done:
                done.result()
            return {sha256: done.result() for sha256, done in running.items()}
        finally:
            fetcher.stopped.set()  # the others, after a failure or Ctrl-C
            pool.shutdown(cancel_futures=True)


def held(sha256: str, cache: Path) -> Path | None:
    """Return the path of a file in the store, as used now; None where it is missing, or damaged: removed."""
    file = place(sha256, cache)
    if not file.is_file():
        return None
    if sha256_of(file) == sha256:
        with suppress(OSError):  # another user's, or a file system that is read only
            # The other time stays: builders take a file with a new one for another file.
            os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))
        return file
    file.unlink(missing_ok=True)
    return None


def adopt(file: Path, sha256: str, cache: Path, report: Reporter = print) -> Path:
    """Move a file of this machine into the store; PinError when its bytes have another sha256."""
    if (found := sha256_of(file)) != sha256:
        raise PinError(f"{file.name} has the sha256 {found} instead of {sha256}", where=str(file))
    to = place(sha256, cache)
    with _writable(cache), _alone(file.name, to, report):
        shutil.move(file, _partial(to))
        _finish(to)
    return to


def link_into(folder: Path, downloads: Collection[Download], cache: Path) -> None:
    """Let `folder` hold exactly these files of the store, by name: as hard links, else as copies.

    Raises PinError when the store lacks one, or two of them have one name.
    """
    names = {download.name: download.sha256 for download in downloads}
    if clash := [download.name for download in downloads if names[download.name] != download.sha256]:
        raise PinError(f"two files of different content have the name {clash[0]}", where=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for name in {path.name for path in folder.iterdir()} - names.keys():
        (folder / name).unlink()
    for name, sha256 in names.items():
        source, target = place(sha256, cache), folder / name
        if not source.is_file():
            raise PinError(f"{name} has not been downloaded", where=str(source))
        if target.exists() and target.samefile(source):
            continue
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(source)
        except OSError:  # another file system, or one without links
            shutil.copy2(source, target)


def unused(wanted: Collection[str], cache: Path) -> list[Path]:
    """Return the files of the store, whole or not, whose sha256 nobody has `wanted` for a day.

    Those that a work folder holds, too, are left out.
    """
    since = time.time() - KEPT_SECONDS
    return [
        path
        for path in sorted((cache.absolute() / FOLDER).glob("*"))
        if (named := _STORED.fullmatch(path.name)) and named[1] not in wanted and _is_idle(path, since)
    ]


def _is_idle(file: Path, since: float) -> bool:
    try:
        about = file.lstat()
    except FileNotFoundError:  # what another command fetched has its name now
        return False
    return about.st_nlink == 1 and about.st_atime < since


def drop(files: Iterable[Path]) -> bool:
    """Remove files of the store; return whether all could be, since no command fetches them."""
    are_free = True
    for file in files:
        try:
            with FileLock(_lock(file.with_suffix("")), timeout=0):
                file.unlink(missing_ok=True)
        except Timeout:
            are_free = False
    return are_free


def place(sha256: str, cache: Path) -> Path:
    """Return the path that a file has, or would have, in the store."""
    return cache.absolute() / FOLDER / sha256


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file's bytes, in hex."""
    return _digest(file).hexdigest()


class _Failed(Exception):
    """A URL did not give the bytes asked for."""


class _BrokenOff(Exception):
    """An answer ended too early; what came is kept."""


class _Progress:
    """What is told of many files together: how many there are, and now and then how many have come."""

    def __init__(self, report: Reporter, absent: Collection[Download]) -> None:
        self._report, self._count, self._done = report, len(absent), 0
        self._lock, self._pace = Lock(), Pace()
        if self._count > FEW:
            sizes = [download.size for download in absent]
            about = f", {units.size(sum(filter(None, sizes)))}" if None not in sizes else ""
            report(f"fetching {self._count} files{about}")

    def is_told(self, size: int) -> bool:
        """Return whether a file of this size has a line of its own."""
        return self._count <= FEW or size >= LARGE_BYTES

    def fetched(self) -> None:
        """Count a file that came."""
        with self._lock:
            self._done += 1
            if self._count > FEW and self._pace.is_due():
                self._report(f"fetched {self._done} of {self._count} files")


class _Fetcher:
    """One run of downloads: connections, trust, and the event that ends it early."""

    def __init__(self, cache: Path, report: Reporter, ca: Path | None, absent: Collection[Download]) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util.retry import Retry

        self.cache = cache
        self.report = report
        self.stopped = Event()
        self.progress = _Progress(report, absent)
        # With True, REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE decide; any other value comes before them.
        self.verify = str(ca) if ca else os.environ.get("SSL_CERT_FILE") or True
        self.http = requests.Session()
        # The hash is of what is stored, not of what a server in between compressed.
        self.http.headers.update({"User-Agent": f"ftbuild/{__version__}", "Accept-Encoding": "identity"})
        retries = Retry(
            total=TRIES, connect=2, backoff_factor=0.5, status_forcelist=_BUSY, raise_on_status=False
        )
        for scheme in ("https://", "http://"):
            self.http.mount(scheme, HTTPAdapter(pool_maxsize=AT_ONCE, max_retries=retries))

    def fetch(self, download: Download) -> Path:
        """Return the path of a file that the store has afterwards."""
        to = place(download.sha256, self.cache)
        there = to.exists()
        if held(download.sha256, self.cache):
            return to
        if there:
            self.report(f"{download.name}: damaged in the store, fetching it again")
        with _alone(download.name, to, self.report):
            if not held(download.sha256, self.cache):
                self._from_any(download, to)
        self.progress.fetched()
        return to

    def _from_any(self, download: Download, to: Path) -> None:
        failures = []
        for url in download.urls:
            try:
                self._from(url, download, to)
                return
            except _Failed as failed:
                failures.append(f"{redact(url)}: {failed}")
        raise PinError(
            "\n    ".join([f"{download.name} with sha256 {download.sha256} cannot be fetched", *failures]),
            where=str(to),
            hint="check network, proxy and CA (invoke doctor), or use --sources with a file of invoke bundle",
        )

    def _from(self, url: str, download: Download, to: Path) -> None:
        """Fetch from one URL, continuing after what is there of the file."""
        import requests
        from urllib3.exceptions import HTTPError

        partial, cause = _partial(to), ""
        for _ in range(TRIES):
            begun = partial.exists()
            try:
                digest = self._transfer(url, download, partial)
            except _BrokenOff as broken:
                cause = str(broken)
                continue
            except (requests.RequestException, HTTPError) as broken:
                raise _Failed(_reason(broken)) from broken
            if digest == download.sha256:
                _finish(to)
                return
            partial.unlink()
            cause = f"other content, its sha256 is {digest}"
            if not begun:  # else what was there was wrong
                break
        raise _Failed(cause)

    def _transfer(self, url: str, download: Download, partial: Path) -> str:
        """Append the rest of a file to `partial`; return the sha256 of the whole."""
        from requests import exceptions

        have = partial.stat().st_size if partial.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        limits = (CONNECT_SECONDS, ANSWER_SECONDS)
        with self.http.get(url, headers=headers, stream=True, timeout=limits, verify=self.verify) as answer:
            if answer.status_code == _RANGE_REFUSED:
                partial.unlink()
                raise _BrokenOff("the server has nothing after what is here")
            if not answer.ok:
                raise _Failed(terminal.printable(f"{answer.status_code} {answer.reason}"[:200]))
            continued = answer.status_code == _PARTIAL
            total = _stated(answer.headers.get("Content-Length")) + (have if continued else 0)
            about = f" {units.size(total)}" if total else ""
            if self.progress.is_told(total):
                self.report(f"{download.name}: fetching{about} from {urlsplit(url).hostname}")
            digest = _digest(partial) if continued else hashlib.sha256()
            with partial.open("ab" if continued else "wb") as file:
                pace = Pace()
                try:
                    for chunk in answer.iter_content(_CHUNK):
                        if self.stopped.is_set():
                            raise Interrupted(f"fetching {download.name} was interrupted")
                        file.write(chunk)
                        digest.update(chunk)
                        if file.tell() > (download.size or file.tell()):
                            raise _Failed(f"more than the {download.size} bytes of this file")
                        if total and pace.is_due():
                            self.report(f"{download.name}: {units.size(file.tell())} of {units.size(total)}")
                except (exceptions.ChunkedEncodingError, exceptions.ConnectionError) as broken:
                    raise _BrokenOff("broke off in the middle of the file") from broken
        return digest.hexdigest()


def _stated(length: str | None) -> int:
    """Return the size that a server states, 0 if it states none that can be: only messages need it."""
    return int(length) if length and re.fullmatch(r"[0-9]{1,15}", length, re.ASCII) else 0


def _reason(broken: Exception) -> str:
    """Return the cause of an error of requests, without addresses of Python objects."""
    if untrusted := re.search(r"certificate verify failed: ([^(\n]+)", str(broken)):
        return f"its certificate is not trusted: {untrusted[1].strip()}"
    cause = _CAUSES.search(str(broken))
    return cause[0].lower() if cause else type(broken).__name__


@contextmanager
def _alone(name: str, to: Path, report: Reporter) -> Iterator[None]:
    """Lock the place of one file in the store."""
    with locks.held(_lock(to), report, f"{name}: waiting for another build that fetches it"):
        yield


def _lock(to: Path) -> Path:
    folder = to.parent / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / to.name


@contextmanager
def _writable(cache: Path) -> Iterator[None]:
    """Turn an OSError of the store's disk into a HostError."""
    with disk.report_full(cache):
        try:
            yield
        except PermissionError as refused:
            raise HostError(
                "the store of downloaded files cannot be written",
                where=str(cache / FOLDER),
                hint="make the folder writable, or let FTBUILD_CACHE name another one",
            ) from refused


def _finish(to: Path) -> None:
    """Give a whole file its name; read-only, since staged folders hold links to it."""
    partial = _partial(to)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.chmod(0o444)
    partial.replace(to)


def _partial(to: Path) -> Path:
    return to.with_name(f"{to.name}.partial")


def _digest(file: Path) -> hashlib._Hash:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256")

"""Pinned sources as one file, for a machine without internet: a tar with one git pack per repository.

A pack names every object by the hash of its content, so a commit read from the file is the commit that was
put in. Downloaded files lie beside them, under their sha256.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from ftbuild.config.schema import Config
from ftbuild.errors import PinError
from ftbuild.host import disk, files
from ftbuild.host.shell import CommandFailed
from ftbuild.sources import downloads
from ftbuild.sources.downloads import Download
from ftbuild.sources.fetch import fetch_release, wanted_objects
from ftbuild.sources.objects import Pinned
from ftbuild.sources.repositories import chosen_releases, store_of
from ftbuild.sources.store import Store
from ftbuild.text.reporter import Reporter

MANIFEST = "ftbuild-sources.json"
FORMAT = 1
# A manifest lists a handful of names.
MANIFEST_BYTES = 1_000_000


def write_bundle(
    config: Config,
    file: Path,
    cache: Path,
    *,
    releases: Collection[str] = (),
    downloaded: Collection[Download] = (),
    report: Reporter = print,
) -> None:
    """Fetch everything that builds of `releases` (none named: all) read, and write it into one file.

    Files of the store that are `downloaded` already are put beside the sources.
    """
    selected = chosen_releases(config, releases)
    with disk.report_full(file):
        for release in selected:
            fetch_release(config, release, cache, report=report)
        stores = {name: store_of(config, name, cache) for name in config.sources.repositories}
        wanted = {name: list(dict.fromkeys(wanted_objects(config, name, selected))) for name in stores}
        packs = {name: (stores[name], wants) for name, wants in wanted.items() if wants}
        paths = {wanted.sha256: downloads.place(wanted.sha256, cache) for wanted in downloaded}
        _write(file, packs, paths, report)


def read_bundle(config: Config, file: Path, cache: Path, *, report: Reporter = print) -> None:
    """Unpack a bundle into the cache, so that its releases can be fetched without network.

    Raises PinError when the file is missing or damaged, or holds no release as the lock pins it.
    """
    stores = {name: store_of(config, name, cache) for name in config.sources.repositories}
    with disk.report_full(cache):
        _read(file, stores, cache, report)
    complete = [release for release in config.lock.sources if _is_complete(config, stores, release)]
    if not complete:
        raise PinError(
            "the bundle holds no release as this lock pins it",
            where=f"{file}, {config.lock_file}",
            hint="make it with invoke bundle from the same checkout",
        )
    report(f"{file} holds everything for {', '.join(complete)}")


def _is_complete(config: Config, stores: Mapping[str, Store], release: str) -> bool:
    return all(
        store.holds(wanted)
        for name, store in stores.items()
        for wanted in wanted_objects(config, name, [release])
    )


def _write(
    file: Path,
    contents: Mapping[str, tuple[Store, Sequence[Pinned]]],
    downloaded: Mapping[str, Path],
    report: Reporter,
) -> None:
    """Put what the stores hold of `contents` by repository name, and files by sha256, into `file`."""
    with files.atomic_file(file) as partial, tarfile.open(partial, "w") as tar:
        text = json.dumps({"format": FORMAT, "repositories": sorted(contents)}).encode()
        entry = tarfile.TarInfo(MANIFEST)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
        for name, (store, wanted) in sorted(contents.items()):
            report(f"{name}: packing {len(wanted)} commits")
            with store.packed(wanted, report) as pack:
                tar.add(pack, f"{name}.pack", filter=_anonymous)
        if downloaded:
            report(f"packing {len(downloaded)} downloaded files")
        for sha256, path in sorted(downloaded.items()):
            tar.add(path, f"{downloads.FOLDER}/{sha256}", filter=_anonymous)


def _read(file: Path, stores: Mapping[str, Store], cache: Path, report: Reporter) -> None:
    """Unpack the packs of `file` into the stores of the same names; leave out the others."""
    if file.exists() and not file.is_file():  # opening a pipe waits for its writer
        raise PinError("the bundle is not a file", where=str(file))
    try:
        with tarfile.open(file, "r:") as tar:
            for name in _manifest(tar):
                if name in stores:
                    report(f"{name}: unpacking")
                    stores[name].unpack(_member(tar, f"{name}.pack"), report)
            for member in tar:
                _, _, sha256 = member.name.partition(f"{downloads.FOLDER}/")
                if sha256 and not downloads.held(sha256, cache):
                    _adopt(tar, member.name, sha256, cache, report)
    except FileNotFoundError as missing:
        raise PinError("the bundle does not exist", where=str(file)) from missing
    except (
        tarfile.TarError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        CommandFailed,
    ) as broken:
        raise PinError(
            "the file is not a bundle of sources, or is compressed, damaged or cut short",
            where=str(file),
            hint="unpack or copy it again, or make it again with invoke bundle",
        ) from broken


def _adopt(tar: tarfile.TarFile, name: str, sha256: str, cache: Path, report: Reporter) -> None:
    """Put a downloaded file into the store, which compares it with its hash."""
    wanted = Download(name.rpartition("/")[2], sha256)
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=cache) as scratch:
        file = Path(scratch, wanted.name)
        with file.open("wb") as unpacked:
            shutil.copyfileobj(_member(tar, name), unpacked)
        downloads.adopt(file, wanted.sha256, cache, report)


def _manifest(tar: tarfile.TarFile) -> Sequence[str]:
    data = json.loads(_member(tar, MANIFEST).read(MANIFEST_BYTES))
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    repositories: Sequence[str] = data["repositories"]
    if len(set(repositories)) != len(repositories):
        raise ValueError("a repository is named twice")
    return repositories


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    entry = tar.getmember(name)
    stream = tar.extractfile(entry) if entry.isreg() and not entry.issparse() else None
    if stream is None:  # a link may lead in a circle, a sparse file holds more than the archive
        raise KeyError(name)
    return stream


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time of this machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry

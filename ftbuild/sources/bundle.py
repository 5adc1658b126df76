"""Pinned sources as one file, for a machine without internet: a tar with one git pack per repository.

A pack names every object by the hash of its content, so whatever happened to the file on its way, a commit
read from it is the commit that was put in.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ftbuild.errors import PinError
from ftbuild.host.shell import CommandFailed
from ftbuild.sources.store import Pinned, Store
from ftbuild.text.reporter import Reporter

MANIFEST = "ftbuild-sources.json"
FORMAT = 1


def write(file: Path, contents: Mapping[str, tuple[Store, Sequence[Pinned]]], report: Reporter) -> None:
    """Put what the stores hold of `contents`, by repository name, into `file`; whole or not at all."""
    fresh = file.with_name(f"{file.name}.new")
    try:
        with tarfile.open(fresh, "w") as tar:
            text = json.dumps({"format": FORMAT, "repositories": sorted(contents)}).encode()
            entry = tarfile.TarInfo(MANIFEST)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
            for name, (store, wanted) in sorted(contents.items()):
                report(f"{name}: packing {len(wanted)} commits")
                with store.packed(wanted, report) as pack:
                    tar.add(pack, f"{name}.pack", filter=_anonymous)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def read(file: Path, stores: Mapping[str, Store], report: Reporter) -> None:
    """Take the packs of `file` into the stores of the same names; others are left out.

    Raises PinError when the file is missing, cut short or something else.
    """
    try:
        with tarfile.open(file) as tar:
            for name in _manifest(tar):
                if name in stores:
                    report(f"{name}: unpacking")
                    stores[name].unpack(_member(tar, f"{name}.pack"), report)
    except FileNotFoundError as missing:
        raise PinError("the bundle does not exist", where=str(file)) from missing
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, CommandFailed) as broken:
        raise PinError(
            "the file is no bundle of sources, or not all of it arrived",
            where=str(file),
            hint="copy it again, or make it again with invoke bundle",
        ) from broken


def _manifest(tar: tarfile.TarFile) -> Sequence[str]:
    data = json.load(_member(tar, MANIFEST))
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    repositories: Sequence[str] = data["repositories"]
    return repositories


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = tar.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return stream


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """No owner and no time of this machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry

"""Pinned sources as one file, for a machine without internet: a tar with one git pack per repository.

A pack names every object by the hash of its content, so whatever happened to the file on its way, a commit
read from it is the commit that was put in.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ftbuild.cache import Packed, Report, Store, Wanted
from ftbuild.errors import PinError
from ftbuild.shell import CommandFailed

MANIFEST = "ftbuild-sources.json"
FORMAT = 1


def write(file: Path, contents: Mapping[str, tuple[Store, Sequence[Wanted]]], report: Report) -> None:
    """Put what the stores hold of `contents`, by repository name, into `file`; whole or not at all."""
    manifest: dict[str, object] = {}
    fresh = file.with_name(f"{file.name}.new")
    with tempfile.TemporaryDirectory(prefix="ftbuild-", dir=file.absolute().parent) as scratch:
        with tarfile.open(fresh, "w") as tar:
            for name, (store, wanted) in sorted(contents.items()):
                report(f"{name}: packing {len(wanted)} commits")
                packed = store.pack(wanted, Path(scratch))
                tar.add(packed.file, f"{name}.pack", filter=_anonymous)
                manifest[name] = {"commits": sorted(packed.commits), "cut": sorted(packed.cut)}
            text = json.dumps({"format": FORMAT, "repositories": manifest}, indent=2).encode()
            entry = tarfile.TarInfo(MANIFEST)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        fresh.replace(file)


def read(file: Path, stores: Mapping[str, Store], report: Report) -> None:
    """Take the packs of `file` into the stores of the same names; others are left out.

    Raises PinError when the file is missing, cut short or something else.
    """
    try:
        with tarfile.open(file) as tar, tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
            for name, listed in _manifest(tar).items():
                if name not in stores:
                    continue
                report(f"{name}: unpacking")
                tar.extract(f"{name}.pack", scratch, filter="data")
                packed = Packed(
                    Path(scratch, f"{name}.pack"), frozenset(listed["commits"]), frozenset(listed["cut"])
                )
                stores[name].unpack(packed, report)
    except FileNotFoundError as missing:
        raise PinError("the bundle does not exist", where=str(file)) from missing
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, CommandFailed) as broken:
        raise PinError(
            "the file is no bundle of sources, or not all of it arrived",
            where=str(file),
            hint="copy it again, or make it again with invoke bundle",
        ) from broken


def _manifest(tar: tarfile.TarFile) -> Mapping[str, Mapping[str, Sequence[str]]]:
    stream = tar.extractfile(MANIFEST)
    if stream is None:
        raise KeyError(MANIFEST)
    data = json.load(stream)
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    repositories: Mapping[str, Mapping[str, Sequence[str]]] = data["repositories"]
    return repositories


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """No owner and no time of this machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry

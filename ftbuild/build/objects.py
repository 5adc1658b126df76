"""Compiled objects as files: packed for a registry, unpacked beside the sources, and what a build took of it.

ccache names an object by a hash of all that decides it: the text, the options, the compiler. So objects of
other inputs than a build's are never found, and cost disk only. What is in one is believed, though.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import BuildError, PublishError
from ftbuild.host import archives, files
from ftbuild.host.json_file import JsonFile
from ftbuild.text.units import GIB

# ccache's file storage: a folder by two digits of a number in base 32, in it a file by the others (ccache(1),
# layout=subdirs).
_NAME = re.compile(r"[0-9a-v]{2}/[0-9a-v]{10,80}")
# A cell of the real sources has some 600.
MAX_FILES, MAX_BYTES = 100_000, 8 * GIB
_STATS = "ccache.statslog"
_FOUND = "remote_storage_hit"
_SourceNames = Annotated[tuple[str, ...], Field(max_length=MAX_FILES, fail_fast=True)]
_ByTree = Annotated[Mapping[str, _SourceNames], Field(max_length=10, fail_fast=True)]


@dataclass(frozen=True)
class Taken:
    """What the trees of a build have taken of the objects `name` (`repository@digest`), signed by `signer`.

    `found` lists the sources of each tree whose objects were there, `compiled` the others.
    """

    name: str
    signer: str
    found: _ByTree
    compiled: _ByTree

    def sentence(self) -> str:
        """Return it in a sentence."""
        counts = "; ".join(
            f"{tree}: {len(self.found.get(tree, ()))} objects were there, {len(sources)} compiled"
            for tree, sources in self.compiled.items()
        )
        return f"objects of {self.name}, signed with {self.signer}: {counts}"


# What a build has taken, in the cell's folder; none for one that took nothing.
RECORD: JsonFile[Taken] = JsonFile(
    "objects.json",
    TypeAdapter(Taken),
    BuildError,
    "the record of the objects that were taken is damaged",
    "invoke build --rebuild",
)


def pack(folder: Path) -> bytes:
    """Return the objects in a folder as a tar, the same for the same objects; BuildError if there is none."""
    names = (str(file.relative_to(folder)) for file in folder.glob("*/*"))
    found = {name: (folder / name).read_bytes() for name in names if _NAME.fullmatch(name)}
    if not found:
        raise BuildError(
            "the build has left no objects",
            where=str(folder),
            hint="the ccache of the base may be older than 4.5, or CCACHE_REMOTE_STORAGE was set",
        )
    return archives.packed(found, 0o644)


def unpack(archive: IO[bytes], folder: Path) -> int:
    """Write the objects of a tar into `folder`, which must not exist; return their number.

    Raises PublishError for a tar that holds anything else.
    """
    count = size = 0
    with files.atomic_folder(folder, durable=False) as partial:
        try:
            with tarfile.open(fileobj=archive, mode="r:") as opened:
                for entry in opened:
                    count, size = count + 1, size + entry.size
                    if not (entry.isreg() and _NAME.fullmatch(entry.name)):
                        raise _odd(f"{entry.name!a} is no object of ccache")
                    if count > MAX_FILES or size > MAX_BYTES:
                        raise _odd("there are more of them than any cell has")
                    content = opened.extractfile(entry)
                    assert content is not None
                    target = partial / entry.name
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(content.read())
        except tarfile.TarError as broken:
            raise _odd(str(broken)) from broken
    return count


def _odd(why: str) -> PublishError:
    return PublishError(f"the objects cannot be unpacked: {why}")


def taken(name: str, signer: str, info: Path, trees: Iterable[str]) -> Taken:
    """Return what the trees of a build took, by ccache's own account in `info/TREE`."""
    stats = {tree: list(_sources(info / tree / _STATS)) for tree in trees}
    return Taken(
        name,
        signer,
        {tree: tuple(sorted(s for s, found in rows if found)) for tree, rows in stats.items()},
        {tree: tuple(sorted(s for s, found in rows if not found)) for tree, rows in stats.items()},
    )


def _sources(stats: Path) -> Iterator[tuple[str, bool]]:
    """Yield each source, and whether its object was found (ccache(1), stats_log)."""
    source, counters = "", set[str]()
    for line in [*_lines(stats), "# "]:
        if line.startswith("# "):
            if source and counters & {_FOUND, "cache_miss"}:
                yield source, _FOUND in counters
            source, counters = line.removeprefix("# "), set()
        else:
            counters.add(line)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []

"""Databases of holes as osv.dev publishes them: a zip file for each ecosystem, a JSON record for each hole.

A database comes from outside. What cannot be read is skipped and counted, and so is what was withdrawn.
"""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftbuild.audit import ranges
from ftbuild.errors import ConfigError

WHERE = "https://osv-vulnerabilities.storage.googleapis.com/Debian/all.zip, and PyPI/all.zip"
# osv.dev's largest records have a few MB, its largest ecosystems some 100,000 records.
MOST_BYTES = 8 * 2**20
MOST_RECORDS = 2_000_000
_SQLITE = b"SQLite format 3\0"
WITHDRAWN = "withdrawn"
# What zipfile raises for files that others made.
_UNREADABLE = (
    zipfile.BadZipFile,  # also a wrong checksum
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,  # a password; NotImplementedError, a compression that Python lacks, is one too
    ValueError,  # names that are no text, negative offsets
)


@dataclass(frozen=True)
class Entry:
    """One package of a record; `family` is its ecosystem without the release."""

    record: Mapping[str, Any]
    affected: Mapping[str, Any]
    ecosystem: str
    name: str

    @property
    def family(self) -> str:
        """The ecosystem without its release."""
        return ranges.family_of(self.ecosystem)


@dataclass
class Database:
    """The entries of a file that somebody asked for, and what became of the rest."""

    file: Path
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    ecosystems: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)


def read(file: Path, wanted: Callable[[str, str], bool]) -> Database:
    """Read a database; keep the entries whose ecosystem and name are `wanted`.

    An entry without an ecosystem is about commits. It is there twice, with the last part of its repository's
    address as name and with the last two, as in `openssl` and `openssl/openssl`.
    Raises ConfigError when the file is no such database.
    """
    database = Database(file)
    for name, content in _members(file):
        database.records += 1
        if isinstance(content, str):
            database.skipped[content] += 1
            continue
        _add(database, name, content, wanted)
    if not database.records:
        raise _unusable(file, "it holds no record (*.json)")
    if sum(database.skipped.values()) - database.skipped[WITHDRAWN] == database.records:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in database.skipped.items())
        raise _unusable(file, f"none of its {database.records} records can be read ({reasons})")
    return database


def _add(database: Database, name: str, content: bytes, wanted: Callable[[str, str], bool]) -> None:
    try:
        record = json.loads(content)
        if not isinstance(record["id"], str):
            raise TypeError
        entries = list(_entries(record))
    except (ValueError, RecursionError):
        database.skipped["not JSON"] += 1
        return
    except (KeyError, TypeError, AttributeError):
        database.skipped["not of OSV's schema"] += 1
        return
    database.ecosystems.update(entry.ecosystem for entry in entries)
    if record.get("withdrawn"):
        database.skipped[WITHDRAWN] += 1
        return
    database.entries += [entry for entry in entries if wanted(entry.ecosystem, entry.name)]


def _entries(record: Mapping[str, Any]) -> Iterator[Entry]:
    for affected in record.get("affected") or ():
        package = affected.get("package")
        if package:
            yield Entry(record, affected, _text(package["ecosystem"]), _text(package["name"]))
        for part in affected.get("ranges") or ():
            if not package and part.get("repo"):
                *_, owner, name = (
                    f"/{_text(part['repo'])}".lower().rstrip("/").removesuffix(".git").split("/")
                )
                yield Entry(record, affected, "", name)
                yield Entry(record, affected, "", f"{owner}/{name}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _members(file: Path) -> Iterator[tuple[str, bytes | str]]:
    """Yield name and content of each record, or why it cannot be read."""
    if not file.is_file():
        raise _unusable(file, "there is no such file")
    try:
        with file.open("rb") as stream:
            if stream.read(len(_SQLITE)) == _SQLITE:
                raise _unusable(file, "it is an SQLite file, maybe Grype's: only OSV's zip files are read")
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if each.filename.endswith(".json")]
            if len(members) > MOST_RECORDS:
                raise _unusable(file, f"it has more than {MOST_RECORDS} records")
            for member in members:
                yield member.filename, _content(archive, member)
    except _UNREADABLE as broken:
        raise _unusable(file, str(broken)) from broken


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | str:
    try:
        with archive.open(member) as stream:
            content = stream.read(MOST_BYTES + 1)
    except _UNREADABLE:
        return "damaged"
    return f"larger than {MOST_BYTES // 2**20} MiB" if len(content) > MOST_BYTES else content


def _unusable(file: Path, reason: str) -> ConfigError:
    return ConfigError(f"not a database of OSV: {reason}", where=str(file), hint=f"one is at {WHERE}")

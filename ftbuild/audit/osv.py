"""Databases of holes as osv.dev publishes them: a zip file for each ecosystem, a JSON record for each hole.

A database comes from outside. What cannot be read is skipped and counted, and so is what was withdrawn.
Everything is limited before it is unpacked, parsed or kept: size, number and depth, of a record and of all.
"""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ftbuild.audit import ranges
from ftbuild.errors import ConfigError
from ftbuild.text import bounded_json

WHERE = "https://osv-vulnerabilities.storage.googleapis.com/Debian/all.zip, and PyPI/all.zip"
# osv.dev's largest records have a few MB, its largest ecosystems some 100,000 records.
MAX_BYTES = 8 * 2**20
MAX_VALUES = 500_000
MAX_RECORDS = 500_000
# Python holds the whole directory of a zip file: some 700 bytes for an entry, which has 46 at least.
MAX_DIRECTORY_BYTES = 24 * 2**20
# Records of one kind are much alike, and yet do not shrink to a hundredth.
MAX_UNPACKED_BYTES = 8 * 2**30
MAX_RATIO, _ALWAYS_UNPACKED_BYTES = 100, 64 * 2**20
# Of the records that somebody asked for: packages, ids, versions, and events, which take four times as much.
MAX_KEPT = 2_000_000
MAX_ECOSYSTEMS = 10_000
_LONGEST_NAME = 1000
# The end of a directory with its comment, and before it those of large files.
_LONGEST_END = 22 + 65_535 + 20 + 1000
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
    """One package of a record: `family` is its ecosystem without the release.

    `record` and `affected` have no field that is neither compared nor shown.
    """

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
    database, kept = Database(file), 0
    for content in _members(file):
        database.records += 1
        if isinstance(content, str):
            database.skipped[content] += 1
            continue
        found = _wanted_entries(database, content, wanted)
        kept += sum(map(_weight, found))
        if kept > MAX_KEPT:
            raise _unusable(file, f"its records about what is asked for have more than {MAX_KEPT} values")
        database.entries += found
        if len(database.ecosystems) > MAX_ECOSYSTEMS:
            raise _unusable(file, f"its records are about more than {MAX_ECOSYSTEMS} ecosystems")
    if not database.records:
        raise _unusable(file, "it holds no record (*.json)")
    if sum(database.skipped.values()) - database.skipped[WITHDRAWN] == database.records:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in database.skipped.items())
        raise _unusable(file, f"none of its {database.records} records can be read ({reasons})")
    return database


def _wanted_entries(database: Database, content: bytes, wanted: Callable[[str, str], bool]) -> list[Entry]:
    """Return the entries of a record that somebody asked for; count one that is skipped."""
    try:
        record = bounded_json.loads(content, MAX_VALUES)
        if not isinstance(record["id"], str):
            raise TypeError
        entries = list(_entries(record))
        database.ecosystems.update(entry.ecosystem for entry in entries)
        if record.get("withdrawn"):
            database.skipped[WITHDRAWN] += 1
            return []
        return [_slim(entry) for entry in entries if wanted(entry.ecosystem, entry.name)]
    except bounded_json.TooMuch:
        database.skipped[f"more than {MAX_VALUES} values"] += 1
    except ValueError:
        database.skipped["not JSON"] += 1
    except (KeyError, TypeError, AttributeError):
        database.skipped["not of OSV's schema"] += 1
    return []


def _slim(entry: Entry) -> Entry:
    """Return an entry with the fields that are compared or shown; TypeError for those of another kind."""
    record = {key: _list(entry.record.get(key)) for key in ("aliases", "upstream", "severity")}
    affected = {key: _list(entry.affected.get(key)) for key in ("ranges", "versions", "severity")}
    affected["ranges"] = [
        {"type": part.get("type"), "events": _list(part.get("events"))} for part in affected["ranges"]
    ]
    return Entry(
        {"id": entry.record["id"], **record, **_words(entry.record)},
        {**affected, **_words(entry.affected)},
        entry.ecosystem,
        entry.name,
    )


def _words(part: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the words by which databases say how bad a hole is."""
    found = {}
    for place, name in (("database_specific", "severity"), ("ecosystem_specific", "urgency")):
        own = part.get(place)
        word = own.get(name) if isinstance(own, dict) else None
        if isinstance(word, str) and len(word) < _LONGEST_NAME:
            found[place] = {name: word}
    return found


def _weight(entry: Entry) -> int:
    """Return how much an entry holds, as `MAX_KEPT` counts it."""
    lists = [entry.record[key] for key in ("aliases", "upstream", "severity")]
    lists += [entry.affected[key] for key in ("versions", "severity")]
    events = sum(len(part["events"]) for part in entry.affected["ranges"])
    return 10 + sum(map(len, lists)) + 4 * (events + len(entry.affected["ranges"]))


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError
    return value


def _entries(record: Mapping[str, Any]) -> Iterator[Entry]:
    for affected in _list(record.get("affected")):
        package = affected.get("package")
        if package:
            yield Entry(record, affected, _text(package["ecosystem"]), _text(package["name"]))
        for part in _list(affected.get("ranges")):
            if not package and part.get("repo"):
                *_, owner, name = (
                    f"/{_text(part['repo'])}".lower().rstrip("/").removesuffix(".git").split("/")
                )
                yield Entry(record, affected, "", name)
                yield Entry(record, affected, "", f"{owner}/{name}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise TypeError
    return value


def _members(file: Path) -> Iterator[bytes | str]:
    """Yield the content of each record, or why it cannot be read."""
    if not file.is_file():
        raise _unusable(file, "there is no such file")
    try:
        with file.open("rb") as stream:
            if stream.read(len(_SQLITE)) == _SQLITE:
                raise _unusable(file, "it is an SQLite file, maybe Grype's: only OSV's zip files are read")
            if _directory_bytes(stream) > MAX_DIRECTORY_BYTES:
                raise _unusable(file, f"it has more than {MAX_RECORDS} records")
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if each.filename.endswith(".json")]
            if len(members) > MAX_RECORDS:
                raise _unusable(file, f"it has more than {MAX_RECORDS} records")
            unpacked = sum(member.file_size for member in members)
            allowed = max(_ALWAYS_UNPACKED_BYTES, MAX_RATIO * file.stat().st_size)
            if unpacked > min(allowed, MAX_UNPACKED_BYTES):
                raise _unusable(file, f"its records would unpack to {unpacked / 1e6:.0f} MB")
            for member in members:
                yield _content(archive, member)
    except _UNREADABLE as broken:
        raise _unusable(file, str(broken)) from broken


def _directory_bytes(stream: BinaryIO) -> int:
    """Return the size of a zip file's directory, which is at its end; 0 if it does not tell.

    PKWARE's APPNOTE, 4.3.14 and 4.3.16: the end of the directory, and before it that of large files.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _LONGEST_END))
    tail = stream.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + 22:
        return 0
    (stated,) = struct.unpack_from("<I", tail, end + 12)
    large = tail.rfind(b"PK\6\6", 0, end)
    if large >= 0 and len(tail) >= large + 48:
        (of_large,) = struct.unpack_from("<Q", tail, large + 40)
        return max(int(of_large), int(stated) if stated != 0xFFFFFFFF else 0)
    return int(stated)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | str:
    try:
        with archive.open(member) as stream:
            content = stream.read(MAX_BYTES + 1)
    except _UNREADABLE:
        return "damaged"
    return f"larger than {MAX_BYTES // 2**20} MiB" if len(content) > MAX_BYTES else content


def _unusable(file: Path, reason: str) -> ConfigError:
    return ConfigError(f"not a database of OSV: {reason}", where=str(file), hint=f"one is at {WHERE}")

"""Databases of holes as osv.dev publishes them, made for tests."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def record(
    name: str,
    ecosystem: str,
    package: str,
    *events: Mapping[str, str],
    versions: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return a record about one package; `events` are those of a range of the ecosystem's versions."""
    affected = {
        "package": {"ecosystem": ecosystem, "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}] if events else [],
        "versions": list(versions),
    }
    return {"schema_version": "1.7.0", "id": name, "affected": [affected], **more}


def commits(name: str, repository: str, *versions: str, **more: Any) -> dict[str, Any]:
    """Return a record about commits of a repository, and the versions that have them."""
    part = {"type": "GIT", "repo": repository, "events": [{"introduced": "0"}, {"fixed": "a" * 40}]}
    affected = {"ranges": [part], "versions": list(versions)}
    return {"schema_version": "1.7.0", "id": name, "affected": [affected], **more}


def write(file: Path, *records: Any, **raw: bytes) -> Path:
    """Write a database of records, and of members with any bytes, by name; return its path."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, each in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(each))
        for name, content in raw.items():
            archive.writestr(f"{name}.json", content)
    return file

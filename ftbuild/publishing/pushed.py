"""Digests that commands on a cell have put into registries, stored in its folder: `pushed.json`.

A tag shows what somebody pushed last; this file shows what came from here. It counts as much as the records
of the gates beside it, with which it travels between machines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from ftbuild.errors import ConfigError, PublishError
from ftbuild.host import files, reading
from ftbuild.registry.answers import Digest
from ftbuild.text import bounded_json

FILE = "pushed.json"


class _File(RootModel[dict[str, Digest]]):
    """Digest by `repository:tag`: the last one that was pushed for this tag."""

    root: Annotated[dict[str, Digest], Field(max_length=1000, fail_fast=True)]


def digest(folder: Path, repository: str, tag: str) -> str | None:
    """Return the digest that was pushed for a tag, None if none was; PublishError for a damaged file."""
    return _read(folder).get(f"{repository}:{tag}")


def holds(folder: Path, repository: str, digest: str) -> bool:
    """Return whether this digest was pushed to a repository from here; PublishError for a damaged file."""
    return any(
        known == digest and name.rpartition(":")[0] == repository for name, known in _read(folder).items()
    )


def note(folder: Path, repository: str, tag: str, digest: str) -> None:
    """Store the digest that was pushed for a tag; PublishError for a damaged file."""
    known = _read(folder)
    name = f"{repository}:{tag}"
    if known.get(name) != digest:
        files.write_atomic(folder / FILE, json.dumps({**known, name: digest}, indent=1) + "\n")


def _read(folder: Path) -> dict[str, str]:
    file = folder / FILE
    if not file.exists():
        return {}
    try:
        return dict(bounded_json.model(_File, reading.read_bytes(file)).root)
    except (ConfigError, bounded_json.Unfit) as damaged:
        raise PublishError(
            "the list of what was pushed from here is damaged",
            where=str(file),
            hint="remove it: what is staged is then read in full, and what is published without it compared",
        ) from damaged

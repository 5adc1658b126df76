"""Digests that commands on a cell have put into registries, stored in its folder: `pushed.json`.

A tag shows what somebody pushed last; this file shows what came from here. It counts as much as the records
of the gates beside it, with which it travels between machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import PublishError
from ftbuild.host.json_file import JsonFile
from ftbuild.registry.answers import Digest

# Digest by `repository:tag`: the last one that was pushed for this tag.
FILE: JsonFile[dict[str, Digest]] = JsonFile(
    "pushed.json",
    TypeAdapter(Annotated[dict[str, Digest], Field(max_length=1000, fail_fast=True)]),
    PublishError,
    "the list of what was pushed from here is damaged",
    "remove it: what is staged is then read in full, and what is published without it compared",
)


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
        FILE.write(folder, {**known, name: digest})


def _read(folder: Path) -> dict[str, Digest]:
    return FILE.read(folder) or {}

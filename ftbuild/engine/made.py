"""Ids of the images that are made on this machine once and built on by many: systems and bases.

Anyone who can reach the engine can give these names to any image. So the id that a name had when it was made,
or when it was first seen, is kept in the cache, and the name is no reason to build on another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import ConfigError
from ftbuild.host.json_file import JsonFile

# The stores of engines give the same image different ids: that of its configuration, or of its manifest.
_STORES = 4
_Ids = Annotated[tuple[str, ...], Field(max_length=100, fail_fast=True)]


# The ids by name, the newest last.
FILE: JsonFile[dict[str, _Ids]] = JsonFile(
    "made-images.json",
    TypeAdapter(Annotated[dict[str, _Ids], Field(max_length=10_000, fail_fast=True)]),
    ConfigError,
    "the ids of bases are damaged",
    "remove the file, and the images that docker image ls 'ftbuild-*' lists: they are rebuilt",
)


def is_known(cache: Path, name: str, image: str) -> bool:
    """Return whether an image is one that its name had before; a name without an id gets this one."""
    ids = _read(cache).get(name, ())
    if not ids:
        note(cache, name, image)
    return not ids or image in ids


def note(cache: Path, name: str, image: str) -> None:
    """Keep the id of an image that was made here."""
    known = _read(cache)
    kept = [each for each in known.get(name, ()) if each != image]
    FILE.write(cache, {**known, name: (*kept, image)[-_STORES:]})


def _read(cache: Path) -> dict[str, tuple[str, ...]]:
    return FILE.read(cache) or {}

"""Ids of the images that are made on this machine once and built on by many: systems and bases.

Anyone who can reach the engine can give these names to any image. So the id that a name had when it was made,
or when it was first seen, is kept in the cache, and the name is no reason to build on another one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from ftbuild.errors import ConfigError
from ftbuild.host import files, reading
from ftbuild.text import bounded_json

FILE = "made-images.json"
# The stores of engines give the same image different ids: that of its configuration, or of its manifest.
_STORES = 4
_Ids = Annotated[tuple[str, ...], Field(max_length=100, fail_fast=True)]


class _File(RootModel[dict[str, _Ids]]):
    """The ids by name, the newest last."""

    root: Annotated[dict[str, _Ids], Field(max_length=10_000, fail_fast=True)]


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
    files.write_atomic(cache / FILE, json.dumps({**known, name: [*kept, image][-_STORES:]}, indent=1) + "\n")


def _read(cache: Path) -> dict[str, tuple[str, ...]]:
    file = cache / FILE
    if not file.exists():
        return {}
    try:
        return dict(bounded_json.model(_File, reading.read_bytes(file)).root)
    except bounded_json.Unfit as damaged:
        raise ConfigError(
            f"the ids of bases are damaged: {damaged}",
            where=str(file),
            hint="remove the file, and the images that docker image ls 'ftbuild-*' lists: they are rebuilt",
        ) from damaged

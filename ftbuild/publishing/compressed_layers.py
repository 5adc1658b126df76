"""What layers have been compressed to, by earlier commands too: `layers.json` in the work folder.

Cells of a base share most of their layers, and each cell may be published by a command of its own. The file
counts as much as `pushed.json`, which is there as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ftbuild.errors import PublishError
from ftbuild.host.json_file import JsonFile
from ftbuild.registry.answers import Digest, Size

# The latest ones are kept.
MAX_LAYERS = 1000
# Digest and bytes of a compressed layer by the digest of what it unpacks to.
FILE: JsonFile[dict[Digest, tuple[Digest, Size]]] = JsonFile(
    "layers.json",
    TypeAdapter(Annotated[dict[Digest, tuple[Digest, Size]], Field(max_length=MAX_LAYERS, fail_fast=True)]),
    PublishError,
    "the list of compressed layers is damaged",
    "remove it: layers are then compressed again",
)


def find(work: Path, diff_id: str) -> tuple[str, int] | None:
    """Return digest and bytes of a layer that was compressed before; PublishError for a damaged file."""
    return (FILE.read(work) or {}).get(diff_id)


def note(work: Path, diff_id: str, digest: str, size: int) -> None:
    """Store what a layer was compressed to; PublishError for a damaged file.

    Of two commands that do so at the same moment one may win: the other's layer is compressed once more.
    """
    known = {**(FILE.read(work) or {}), diff_id: (digest, size)}
    FILE.write(work, dict(list(known.items())[-MAX_LAYERS:]))

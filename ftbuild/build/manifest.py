"""The manifest of a staged folder: every file with its mode and sha256, to be compared before each use."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ftbuild.host import files
from ftbuild.text import bounded_json

Manifest = Mapping[str, str]


def take(folder: Path) -> Manifest:
    """Return path -> type, mode and content of everything in a folder, whose own name does not count."""
    return {str(path.relative_to(folder)): _described(path) for path in _members(folder)}


def write(file: Path, manifest: Manifest) -> None:
    """Write a manifest, one line for each path."""
    files.write_atomic(file, json.dumps(manifest, indent=0, sort_keys=True) + "\n")


def changed(folder: Path, file: Path) -> list[str]:
    """Return the paths in which a folder differs from the manifest in `file`; all if there is none."""
    try:
        read = bounded_json.loads(file.read_bytes())
    except (OSError, ValueError):
        read = None
    recorded: Manifest = read if isinstance(read, dict) else {}
    found = take(folder)
    return sorted(path for path in {*recorded, *found} if recorded.get(path) != found.get(path))


def _members(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *names))


def _described(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {path.readlink()}"
    if stat.S_ISREG(mode):
        with path.open("rb") as content:
            return f"{stat.S_IMODE(mode):o} {hashlib.file_digest(content, 'sha256').hexdigest()}"
    return f"{stat.filemode(mode)}"

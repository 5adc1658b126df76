"""Files that others made: read within limits, and never through a link that leads out of their folder.

A checkpoint comes from the internet and a converter's output from code that read it, so neither decides what
ftbuild reads, how much memory that takes, or what a message does to a terminal.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from ftbuild.errors import ConfigError, HostError
from ftbuild.host import reading
from ftbuild.text import terminal

# No configuration, index or tokenizer of these families is larger. An empty object takes 3 bytes of JSON and
# 72 of Python, so a file of this size takes at most 400 MB.
JSON_BYTES = 16 * 2**20
# config.ini and config.pbtxt have some kilobytes, and their parsers take a second for a megabyte.
SETTINGS_BYTES = 2**18
# Whole numbers of FasterTransformer are `int`.
MAX = 2**31 - 1
# A checkpoint has some hundreds of files at most, in two or three folders.
MAX_FILES, MAX_DEPTH = 100_000, 50
# NAME_MAX of Linux' file systems, in bytes.
LONGEST_NAME = 255
_SNAPSHOTS, _BLOBS = "snapshots", "blobs"
shown = terminal.quoted


def plain(text: str) -> str:
    """Return a text for a message: as it is when it is short and printable, else as `shown`."""
    return text if text.isprintable() and len(text) <= terminal.LONGEST else shown(text)


def sentence(message: object) -> str:
    """Return the first line of a library's message, which may quote the file: cut, and printable."""
    first = str(message).partition("\n")[0][:300]
    return first if first.isprintable() else ascii(first)


def is_file_name(name: object) -> bool:
    """Return whether a value names an entry of a folder: one part of a path, and not its parent."""
    if not isinstance(name, str) or not name.isprintable() or len(name.encode()) > LONGEST_NAME:
        return False
    return PurePosixPath(name).name == name and name not in ("", "..")


def json_object(file: Path, what: str, hint: str) -> dict[str, Any]:
    """Return the JSON object in a file; ConfigError, which calls it `what`, when there is none."""
    return parsed_object(reading.read_bytes(file, max_bytes=JSON_BYTES), file, what, hint)


def json_list(file: Path, what: str, hint: str) -> list[Any]:
    """Return the JSON list in a file; ConfigError, which calls it `what`, when there is none."""
    items = _parsed(reading.read_bytes(file, max_bytes=JSON_BYTES), file, what, hint)
    if not isinstance(items, list):
        raise ConfigError(f"not {what}: it is not a JSON list", where=str(file), hint=hint)
    return items


def parsed_object(content: bytes, file: Path, what: str, hint: str) -> dict[str, Any]:
    """Return the JSON object in bytes that came from `file`; ConfigError when it is none."""
    value = _parsed(content, file, what, hint)
    if not isinstance(value, dict):
        raise ConfigError(f"not {what}: it is not a JSON object", where=str(file), hint=hint)
    return value


def _parsed(content: bytes, file: Path, what: str, hint: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=_no_number)
    except RecursionError:
        raise ConfigError(f"not {what}: nested too deeply", where=str(file), hint=hint) from None
    except ValueError as broken:
        raise ConfigError(f"not {what}: {sentence(broken)}", where=str(file), hint=hint) from broken


def whole_number(value: object, name: str, where: Path, hint: str, *, low: int = 0) -> int:
    """Return a value of JSON as a number; ConfigError unless it is whole, at least `low` and of 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX:
        raise ConfigError(
            f"{name} is {shown(value)}, not a whole number from {low} to {MAX}",
            where=str(where),
            hint=hint,
        )
    return value


def require_inside(folder: Path, file: Path) -> Path:
    """Return the real path of a file of `folder`; ConfigError when links lead elsewhere.

    They may lead within the folder and, in Hugging Face's cache, from snapshots/<commit> into blobs beside
    `snapshots` (huggingface_hub's guide "Understand caching").
    """
    try:
        real, root = file.resolve(), folder.resolve()
    except (OSError, RuntimeError) as endless:
        raise ConfigError(f"{shown(file.name)} is a dangling link", where=str(file)) from endless
    allowed = [root]
    if root.parent.name == _SNAPSHOTS:
        allowed.append(root.parent.parent / _BLOBS)
    if any(real.is_relative_to(place) for place in allowed):
        return real
    raise ConfigError(
        f"{shown(file.name)} is a link that leads out of the folder",
        where=str(file),
        hint="copy the file itself there: links that leave a folder from elsewhere are not followed",
    )


def require_links_inside(folder: Path) -> None:
    """Raise ConfigError when a link anywhere in `folder` leads out of it."""
    for path in walk(folder):
        if path.is_symlink():
            require_inside(folder, path)


def require_plain(folder: Path, hint: str) -> None:
    """Raise ConfigError unless there are regular files and folders only; take their setuid and setgid bits.

    A link, a pipe or a device would let the author of the folder decide what is read or written later.
    """
    for path in walk(folder):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConfigError(
                f"{shown(path.name)} is neither a file nor a folder, but {_kind(mode)}",
                where=str(path),
                hint=hint,
            )
        if mode & (stat.S_ISUID | stat.S_ISGID):
            path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, without following links.

    Raises ConfigError for more files, or folders in folders, than a model has, HostError for what cannot be
    listed.
    """
    waiting, entries_seen = [(folder, 0)], 0
    while waiting:
        inside, depth = waiting.pop()
        try:
            with os.scandir(inside) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as unreadable:
            what = f"the folder cannot be read: {unreadable.strerror}"
            raise HostError(what, where=plain(str(inside))) from unreadable
        entries_seen += len(entries)
        if depth > MAX_DEPTH or entries_seen > MAX_FILES:
            raise ConfigError(
                f"more than {MAX_FILES} files, or {MAX_DEPTH} nested folders, are not a model",
                where=str(folder),
                hint="name the folder of the model itself",
            )
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), depth + 1))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")

"""Files that people write: read as a whole, within a limit, and never from a pipe, which might never end."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from ftbuild.errors import ConfigError, HostError

# The largest of ours, the lock of Debian packages, has 55 kB.
MAX_BYTES = 1_000_000
# Tabs and line ends apart, no text has a use for control characters, and terminals obey them.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Errors that a wrong path causes; any other one is the machine's.
_WRONG_PATH = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is a file",
    errno.ELOOP: "its links form a loop",
    errno.ENAMETOOLONG: "its name is too long",
    errno.EISDIR: "it is not a file",
    errno.ENXIO: "it is not a file",  # a socket
}


def read_bytes(file: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises ConfigError when there is none or it has more than `max_bytes` bytes, HostError when it cannot be
    read.
    """
    try:
        # Opening a pipe without this flag waits for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unusable(file, "it is not a file")
            content = stream.read(max_bytes + 1)
    except OSError as refused:
        if refused.errno in _WRONG_PATH:
            raise _unusable(file, _WRONG_PATH[refused.errno]) from refused
        raise HostError(f"{_name(file)} cannot be read: {refused.strerror}", where=str(file)) from refused
    except ValueError as broken:  # a NUL in the path
        raise _unusable(file, str(broken)) from broken
    if len(content) > max_bytes:
        raise _unusable(file, f"it has more than {max_bytes / 1e6:g} MB")
    return content


def read_text(file: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a regular file, which is UTF-8 (with or without byte order mark).

    Raises ConfigError, with the line, for other encodings and control characters; errors as `read_bytes`.
    """
    content = read_bytes(file, max_bytes=max_bytes)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise ConfigError(
            "not UTF-8 text", where=f"{file}:{line}", hint="save the file with the encoding UTF-8"
        ) from broken
    if match := _CONTROL.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise ConfigError(f"holds the control character {match[0]!r}", where=f"{file}:{line}")
    return text


def _unusable(file: Path, reason: str) -> ConfigError:
    return ConfigError(f"{_name(file)} cannot be read: {reason}", where=str(file))


def _name(file: Path) -> str:
    return file.name or str(file)  # / and . have none

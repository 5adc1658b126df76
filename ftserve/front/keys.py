"""API keys: the bearer tokens that clients show."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ftserve.front.errors import ConfigError

# The variable with an API key: on a command line every user of the machine could read it.
KEY_VARIABLE = "FTBUILD_OPENAI_API_KEY"
SHORTEST_KEY = 16


def read(file: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the API keys of a file, one per line, and of the environment; ConfigError for a weak one."""
    keys = [environment[KEY_VARIABLE]] if environment.get(KEY_VARIABLE) else []
    where = KEY_VARIABLE
    if file is not None:
        where = str(file)
        try:
            keys += [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeError) as unreadable:
            raise ConfigError("the file with API keys cannot be read", where=where) from unreadable
        if not keys:
            raise ConfigError("the file with API keys has none", where=where, hint="one key a line")
    if any(len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() for key in keys):
        raise ConfigError(
            f"an API key has fewer than {SHORTEST_KEY} characters, or others than ASCII",
            where=where,
            hint="openssl rand -hex 32 makes one",
        )
    return tuple(keys)

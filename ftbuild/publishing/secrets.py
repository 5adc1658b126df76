"""Passwords that must not get into a registry: those in URLs, and those that this process knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from ftbuild.errors import PublishError
from ftbuild.host import redaction

# A password, or a token in place of a user. BuildKit writes xxxxx and we write *** for what was there; what
# follows docker-image:// is a name with its tag.
_IN_URL = re.compile(r"(?<!docker-image)://(?:[^/@\s]*:(?!x+@|\*+@)([^/@\s]+)@|(?!x+@|\*+@)([^/@:\s]{16,})@)")
# A shorter value that this process knows may be a word of the text by chance.
SHORTEST = 8


def require_none(statement: bytes, what: str) -> None:
    """Raise PublishError if a statement, which is JSON, holds a password in a URL or one that is known."""
    redaction.remember_environment(os.environ)
    for text in _texts(from_json(statement)):
        if _IN_URL.search(text) or redaction.holds_known(text, SHORTEST):
            raise PublishError(
                f"{what} hold a password, so nothing is uploaded",
                hint="build arguments end up in BuildKit's provenance: take a proxy with a password out of "
                "the environment and of ~/.docker/config.json, or give it to the daemon, then build again",
            )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in JSON data, names of fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)

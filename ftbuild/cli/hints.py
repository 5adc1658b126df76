"""Commands that messages tell to run next, with the configuration folder of the command that failed.

Whoever finds a mistake does not know the command line: `invoke lock`, typed as it stands, would lock another
configuration.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Commands with the option --config, as they are typed.
_configured: set[str] = set()
# The line of an error that says what to do next (errors.py).
_NEXT = re.compile(r"(?m)^ *next:  .*$")
_COMMAND = re.compile(r"\binvoke ([a-z][a-z0-9.-]*[a-z0-9])")


class _Running:
    """The configuration folder that was given to the command that runs, if any."""

    folder: Path | None = None


@contextmanager
def about(folder: Path | None) -> Iterator[None]:
    """Let the hints of a command, within the block, be about the configuration folder it was given."""
    if folder is None:
        yield
        return
    from ftbuild.text import results  # most commands show no table of results

    before, _Running.folder = _Running.folder, folder
    try:
        with results.telling(as_shown):
            yield
    finally:
        _Running.folder = before


def as_shown(hint: str) -> str:
    """Return a hint as the running command tells it."""
    return of(hint, _Running.folder) if _Running.folder else hint


def printed(text: str) -> str:
    """Return what a command prints with its errors' hints as it tells them."""
    return _NEXT.sub(lambda line: as_shown(line[0]), text) if _Running.folder else text


def takes_configuration(*names: str) -> None:
    """Note a command that has the option --config, with all of its names."""
    _configured.update(names)


def of(hint: str, folder: Path) -> str:
    """Return a hint whose commands read the configuration of `folder`, unless the hint is about --config."""
    if "--config" in hint:
        return hint
    option = f" --config {shlex.quote(str(folder))}"
    return _COMMAND.sub(lambda match: match[0] + (option if match[1] in _configured else ""), hint)

"""Rendered files on disk: written, compared, and removed when another variant does without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ftbuild.ci.options import MARK
from ftbuild.errors import ConfigError


def drift(folder: Path, wanted: Mapping[str, str], owned: Iterable[str]) -> list[str]:
    """Paths that differ from what they should be, each with the reason.

    `owned` are all paths that a variant may have: a file of ours that this one lacks is left over.
    """
    found = []
    for path, text in wanted.items():
        file = folder / path
        if not file.is_file():
            found.append(f"{path} is missing")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} is out of date")
    return found + [f"{path} is left over" for path in _leftover(folder, wanted, owned)]


def require_up_to_date(folder: Path, wanted: Mapping[str, str], owned: Iterable[str]) -> None:
    """ConfigError that names every file which is not as it would be written now."""
    if stale := drift(folder, wanted, owned):
        raise ConfigError(
            f"CI files are not what the configuration makes: {', '.join(stale)}",
            where=str(folder),
            hint="run the command in the first line of each file, or check with the same options",
        )


def write(folder: Path, wanted: Mapping[str, str], owned: Iterable[str]) -> None:
    """Write what is wanted and remove what is left over. ConfigError for a file that is not ours."""
    for path in wanted:
        if (folder / path).is_file() and not _is_ours(folder / path):
            raise ConfigError(
                f"{path} was not made by invoke dev.ci",
                where=str(folder / path),
                hint="move it away, or print ours with --dry-run and take over what you need",
            )
    for path, text in wanted.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for path in _leftover(folder, wanted, owned):
        (folder / path).unlink()


def _leftover(folder: Path, wanted: Mapping[str, str], owned: Iterable[str]) -> list[str]:
    return [path for path in owned if path not in wanted and _is_ours(folder / path)]


def _is_ours(file: Path) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8").startswith(MARK)

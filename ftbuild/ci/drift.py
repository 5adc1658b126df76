"""Rendered files on disk: write and compare them, and remove those of another variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ftbuild.ci.options import MARK
from ftbuild.errors import ConfigError


def differences(folder: Path, rendered: Mapping[str, str], owned: Iterable[str]) -> list[str]:
    """Return the paths that differ from `rendered`, each with the reason.

    `owned` are the paths of all variants: a file written by ftbuild that this variant lacks is left over.
    """
    differing = []
    for path, text in rendered.items():
        file = folder / path
        if not file.is_file():
            differing.append(f"{path} is missing")
        elif _text(file) != text:
            differing.append(f"{path} is out of date")
    return differing + [f"{path} is left over" for path in _leftover(folder, rendered, owned)]


def require_up_to_date(folder: Path, rendered: Mapping[str, str], owned: Iterable[str]) -> None:
    """Raise ConfigError with the names of all files that differ from what would be written now."""
    if stale := differences(folder, rendered, owned):
        written = any((folder / path).is_file() for path in owned)
        raise ConfigError(
            f"CI files differ from the configuration: {', '.join(stale)}",
            where=str(folder),
            hint="run the command in the first line of each file, or check with the same options"
            if written
            else "the same command without --check writes them",
        )


def write(folder: Path, rendered: Mapping[str, str], owned: Iterable[str]) -> None:
    """Write `rendered` and remove leftovers; raise ConfigError for a file that ftbuild did not write."""
    for path in rendered:
        if (folder / path).is_file() and not _is_ours(folder / path):
            raise ConfigError(
                f"{path} was not written by invoke dev.ci",
                where=str(folder / path),
                hint="move it away, or print the generated file with --dry-run and copy what you need",
            )
    for path, text in rendered.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for path in _leftover(folder, rendered, owned):
        (folder / path).unlink()


def _leftover(folder: Path, rendered: Mapping[str, str], owned: Iterable[str]) -> list[str]:
    return [path for path in owned if path not in rendered and _is_ours(folder / path)]


def _is_ours(file: Path) -> bool:
    return file.is_file() and _text(file).startswith(MARK)


def _text(file: Path) -> str:
    """Return the text of a file, which may be another person's, in any encoding."""
    return file.read_text(encoding="utf-8", errors="replace")

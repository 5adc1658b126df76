"""The family of converted weights, recognized by the names of their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ftbuild.config.families import LoadedPart, Loading, ModelsConfig
from ftbuild.models import loading

SUFFIX = ".bin"


@dataclass(frozen=True)
class Fit:
    """How the names of files fit a family: `missing` are patterns of files that each of its models has.

    `unexplained` are files that it does not read, and that its converters do not write either.
    """

    family: str
    missing: tuple[str, ...]
    unexplained: tuple[str, ...]


def patterns(families: ModelsConfig) -> list[str]:
    """Return the patterns of all files that some family reads."""
    tables = (of.loading for of in families.families.values() if of.loading)
    return list(dict.fromkeys(pattern for table in tables for part in table.parts for pattern in _ever(part)))


def fits(names: Iterable[str], families: ModelsConfig) -> list[Fit]:
    """Return how the files fit each family, the best first."""
    there = sorted(name for name in names if name.endswith(SUFFIX))
    candidates = [
        _fit(name, of.loading, there, families) for name, of in families.families.items() if of.loading
    ]
    return sorted(candidates, key=lambda fit: (len(fit.missing), len(fit.unexplained)))


def best(names: Iterable[str], families: ModelsConfig) -> list[str]:
    """Return the families whose files are all there; of these, the ones that explain most other files.

    There may be none, or several with the same names.
    """
    candidates = [fit for fit in fits(names, families) if not fit.missing]
    return [fit.family for fit in candidates if len(fit.unexplained) == len(candidates[0].unexplained)]


def _fit(family: str, described: Loading, there: list[str], families: ModelsConfig) -> Fit:
    needed = dict.fromkeys(pattern for part in described.parts for pattern in _always(part))
    served = (each for name, each in families.families.items() if families.template(name) == family)
    written = (pattern for each in served for converter in each.converters for pattern in converter.files)
    known = {**needed, **dict.fromkeys(pattern for part in described.parts for pattern in _ever(part))}
    unexplained, missing = there, []
    for pattern in {**known, **dict.fromkeys(written)}:
        expression = loading.expression(pattern)
        left = [name for name in unexplained if not expression.fullmatch(name)]
        if len(left) == len(unexplained) and pattern in needed:
            missing.append(pattern)
        unexplained = left
    return Fit(family, tuple(missing), tuple(unexplained))


def _always(part: LoadedPart) -> Iterator[str]:
    """Yield the patterns of files that every model has."""
    replaced = {name for other in part.instead for name in other.replaces}
    for pattern, size in loading.read_files(part).items():
        switched = any(loading.is_switch(part, name) for name in size.split(" * "))
        if not switched and pattern not in {*part.only_if, *part.optional, *replaced}:
            yield pattern


def _ever(part: LoadedPart) -> Iterator[str]:
    """Yield the patterns of all files that some model has."""
    yield from loading.read_files(part)
    yield from part.more
    yield from (pattern for other in part.instead for pattern in other.files)
    if part.prompts:
        yield from (pattern for table in part.prompts.files.values() for pattern in table)

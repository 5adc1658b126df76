"""The matrix of images that can be built or cannot, and the selection of cells by option and glob.

Pure: neither Docker nor network. A cell that cannot exist is never dropped silently; it is listed with every
reason and the source of each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.version import Version

from ftbuild.config.schema import BaseConfig, Config, ReleaseConfig
from ftbuild.errors import ConfigError, NothingSelected
from ftbuild.sm import Sm, parse_sms, sm_codes, sm_list, sm_set_id


@dataclass(frozen=True, order=True)
class Cell:
    """One image to build: a Triton release, the SMs compiled into it, its base."""

    triton: str
    sms: tuple[Sm, ...]
    base: str
    is_default_base: bool

    @property
    def id(self) -> str:
        """`22.12-sm80`, `22.12-sm80_86`; another base than the default is named: `22.12-sm80-open`."""
        return f"{self.triton}-sm{sm_set_id(self.sms)}" + ("" if self.is_default_base else f"-{self.base}")

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class Excluded:
    """A cell that cannot be built, with the reasons (each names its source)."""

    cell: Cell
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """Every pair of release and SM on one base: the cells that can be built, and those that cannot."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]


def make_matrix(config: Config, base: str | None = None) -> Matrix:
    """Return all single-SM cells on `base` (default: the configured default base)."""
    name = base or config.bases.default
    _base(config, name)
    cells, excluded = [], []
    for triton, sm in itertools.product(config.matrix.releases, config.matrix.sms):
        cell = _cell(config, triton, (sm,), name)
        if reasons := tuple(_reasons(config, cell)):
            excluded.append(Excluded(cell, reasons))
        else:
            cells.append(cell)
    return Matrix(tuple(cells), tuple(excluded))


def select(
    config: Config,
    *,
    triton: Sequence[str] = (),
    sms: Sequence[str] = (),
    cells: Sequence[str] = (),
    base: str | None = None,
) -> tuple[Cell, ...]:
    """Return the cells that the options select.

    `triton` names releases (none: all), `sms` holds one value per image, either an SM (`80`) or several in
    one image (`80,86`); none means the default SMs of each release. `cells` are globs on cell ids and
    select among all possible single-SM cells. Raises ConfigError for a value that does not exist or that
    names an excluded cell (with the reasons and the valid ones), NothingSelected when no cell is left.
    """
    table = make_matrix(config, base)
    releases = _releases(config, triton)
    if cells:
        chosen = _by_glob(table, cells)
        wanted = {_sm_set(config, text) for text in sms}
        chosen = [c for c in chosen if c.triton in releases and (not wanted or c.sms in wanted)]
    else:
        name = base or config.bases.default
        chosen = [
            _cell(config, release, group, name)
            for release in releases
            if triton or release in _base(config, name).releases
            for group in ([_sm_set(config, text) for text in sms] or _defaults(config, release))
        ]
    if not chosen:
        raise _nothing()
    for cell in chosen:
        _refuse_excluded(config, cell, table, by_default=not sms and not cells)
    return tuple(dict.fromkeys(chosen))


def select_with_excluded(
    config: Config,
    *,
    triton: Sequence[str] = (),
    sms: Sequence[str] = (),
    cells: Sequence[str] = (),
    base: str | None = None,
) -> Matrix:
    """Return every cell within the options, with those that cannot exist as excluded; no options: all.

    Raises ConfigError for a release or an SM that does not exist, NothingSelected when no cell is left.
    """
    name = base or config.bases.default
    _base(config, name)
    groups = [_sm_set(config, text) for text in sms] or [(sm,) for sm in config.matrix.sms]
    candidates = dict.fromkeys(
        cell
        for release, group in itertools.product(_releases(config, triton), groups)
        if _matches(cell := _cell(config, release, group, name), cells)
    )
    reasons = {cell: tuple(_reasons(config, cell)) for cell in candidates}
    possible = tuple(cell for cell in candidates if not reasons[cell])
    if not possible:
        raise _nothing()
    return Matrix(possible, tuple(Excluded(cell, why) for cell, why in reasons.items() if why))


def as_json(table: Matrix) -> str:
    """Return the matrix for programs: `cells` and `excluded`, the latter with reasons."""
    excluded = [{**_record(e.cell), "reasons": list(e.reasons)} for e in table.excluded]
    return json.dumps({"cells": [_record(c) for c in table.cells], "excluded": excluded}, indent=2)


def as_github(cells: Iterable[Cell]) -> str:
    """Return two lines for `$GITHUB_OUTPUT`: `matrix={"include": [...]}` and `count=N`.

    The count is for an `if:` on the job, since GitHub Actions refuses a matrix without entries.
    """
    records = [{**_record(c), "sms": sm_list(c.sms)} for c in cells]
    return f"matrix={json.dumps({'include': records})}\ncount={len(records)}"


def cuda_version(config: Config, cell: Cell) -> str:
    """Return the CUDA version that compiles the cell: the base's own, else the release's."""
    return _base(config, cell.base).cuda or config.matrix.releases[cell.triton].cuda


def _releases(config: Config, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the releases named (none: all); ConfigError for one that is not in the matrix."""
    for release in wanted:
        if release not in config.matrix.releases:
            known = ", ".join(config.matrix.releases)
            raise ConfigError(f"Triton release {release!r} is not in the matrix", hint=f"releases: {known}")
    return tuple(r for r in config.matrix.releases if not wanted or r in wanted)


def _matches(cell: Cell, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(cell.id, glob) for glob in globs)


def _nothing() -> NothingSelected:
    return NothingSelected("no cell is selected by these options", hint="invoke matrix lists the cells")


def _record(cell: Cell) -> dict[str, object]:
    return {"id": cell.id, "triton": cell.triton, "sms": list(cell.sms), "base": cell.base}


def _cell(config: Config, triton: str, sms: tuple[Sm, ...], base: str) -> Cell:
    return Cell(triton, sms, base, base == config.bases.default)


def bases(config: Config, releases: Collection[str], name: str | None) -> list[str]:
    """Return the base `name`, or every base for one of `releases` (none named: any); `none` is no base."""
    if name == "none":
        return []
    if name:
        _base(config, name)
        return [name]
    described = config.bases.bases.items()
    return [base for base, about in described if not releases or set(releases) & set(about.releases)]


def _base(config: Config, name: str) -> BaseConfig:
    try:
        return config.bases.bases[name]
    except KeyError:
        known = ", ".join(config.bases.bases)
        raise ConfigError(f"base {name!r} is not described in bases.yaml", hint=f"bases: {known}") from None


def _sm_set(config: Config, text: str) -> tuple[Sm, ...]:
    """Return the SMs of an option's value (`80,86`); ConfigError for one that the matrix does not have."""
    known = f"SMs: {', '.join(map(str, config.matrix.sms))}"
    try:
        sms = parse_sms(text)
    except ConfigError as wrong:
        raise ConfigError(wrong.what, hint=known) from None
    if unknown := [sm for sm in sms if sm not in config.matrix.sms]:
        raise ConfigError(f"{sm_codes(unknown)} is not in the matrix", hint=known)
    return sms


def _defaults(config: Config, release: str) -> list[tuple[Sm, ...]]:
    return [(sm,) for sm in config.matrix.releases[release].default_sms]


def _by_glob(table: Matrix, globs: Sequence[str]) -> list[Cell]:
    chosen: list[Cell] = []
    for glob in globs:
        if found := [c for c in table.cells if _matches(c, [glob])]:
            chosen += found
        elif refused := [e for e in table.excluded if _matches(e.cell, [glob])]:
            raise _excluded(refused[0].cell, refused[0].reasons, table)
        else:
            known = ", ".join(c.id for c in table.cells)
            raise ConfigError(f"no cell is called {glob!r}", hint=f"cells: {known}")
    return chosen


def _refuse_excluded(config: Config, cell: Cell, table: Matrix, *, by_default: bool) -> None:
    if reasons := tuple(_reasons(config, cell)):
        defaults = config.place("matrix.yaml", "releases", cell.triton, "default_sms")
        raise _excluded(cell, reasons, table, where=defaults if by_default else None)


def _excluded(cell: Cell, reasons: Sequence[str], table: Matrix, *, where: str | None = None) -> ConfigError:
    valid = ", ".join(c.id for c in table.cells if c.triton == cell.triton) or "none"
    return ConfigError(
        f"{cell.id} cannot be built:" + "".join(f"\n  - {reason}" for reason in reasons),
        where=where,
        hint=f"cells of {cell.triton} on base {cell.base}: {valid}",
    )


def _reasons(config: Config, cell: Cell) -> Iterator[str]:
    """Yield the reasons why a cell cannot exist, if any."""
    release, base = config.matrix.releases[cell.triton], _base(config, cell.base)
    if cell.triton not in base.releases:
        yield f"base {cell.base} carries no image for {cell.triton} ({base.source})"
    cuda = cuda_version(config, cell)
    for sm in cell.sms:
        yield from _sm_reasons(config, sm, cuda, release)


def _sm_reasons(config: Config, sm: Sm, cuda: str, release: ReleaseConfig) -> Iterator[str]:
    fact = config.matrix.sms[sm]
    if Version(cuda) < Version(fact.cuda):
        yield f"CUDA {cuda} is too old for {sm.code}, which needs {fact.cuda} ({fact.source})"
    if sm not in release.sms.builds and sm not in release.sms.patched:
        yield f"its FasterTransformer does not know {sm.code} ({release.sms.source})"

"""The matrix of images that can be built or cannot, and the selection of cells by option and glob.

Pure: neither Docker nor network. A cell that cannot exist is never dropped silently; it is listed with every
reason and the source of each.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from packaging.version import Version

from ftbuild import features
from ftbuild.config.bases import BaseConfig
from ftbuild.config.schema import Config, ReleaseConfig
from ftbuild.errors import ConfigError, NothingSelected
from ftbuild.features import NOTHING, LeftOut
from ftbuild.sm import Sm, parse_sms, sm_codes, sm_list, sm_set_id, stand_ins

_ID = re.compile(r"(?P<triton>[^-]+)-sm(?P<sms>\d+(?:_\d+)*)(?:-(?P<base>.+))?")
# With a key and `-sdk` it is a tag: OCI distribution-spec v1.1, "Pulling manifests".
LONGEST_ID = 128 - len("-0123456789ab-sdk")


@dataclass(frozen=True, order=True)
class Cell:
    """One image to build: a Triton release, the SMs compiled into it, its base, what it leaves out."""

    triton: str
    sms: tuple[Sm, ...]
    base: str
    is_default_base: bool
    left_out: LeftOut = NOTHING

    @property
    def id(self) -> str:
        """`22.12-sm80`, `22.12-sm80_86`; another base than the release's is named: `22.12-sm80-ngc`.

        What it leaves out comes last: `22.12-sm80-without-beams_int8`.
        """
        return f"{self._short_id}{self.left_out.suffix}" if self.is_default_base else self.full_id

    @property
    def full_id(self) -> str:
        """The id with the base, whichever it is: `22.12-sm80-open`."""
        return f"{self._short_id}-{self.base}{self.left_out.suffix}"

    def record(self) -> dict[str, object]:
        """Return what names it, for programs."""
        names = {"id": self.id, "triton": self.triton, "sms": list(self.sms), "base": self.base}
        return {**names, **self.left_out.record()}

    @property
    def _short_id(self) -> str:
        return f"{self.triton}-sm{sm_set_id(self.sms)}"

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class Excluded:
    """A cell that cannot be built, with the reasons (each names its source)."""

    cell: Cell
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """Pairs of release and SM on one base or several: the cells that can be built, and those that cannot."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]


def make_matrix(config: Config, *bases: str) -> Matrix:
    """Return all single-SM cells on these bases (none: each release's cells on its own base)."""
    cells, excluded = [], []
    pairs = _pairs(config, tuple(config.matrix.releases), bases)
    for (triton, base), sm in itertools.product(pairs, config.matrix.sms):
        cell = _cell(config, triton, (sm,), base)
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
    bases: Sequence[str] = (),
    left_out: LeftOut = NOTHING,
) -> tuple[Cell, ...]:
    """Return the cells that the options select.

    `bases` names bases (none: each release's own), each with the releases that it carries, `triton` releases
    (none: all), `sms` holds one value per image, either an SM (`80`) or several in one image (`80,86`); none
    means the default SMs of each release. `cells` are globs on cell ids, with or without the base in them,
    and select among all possible single-SM cells. One that matches none of them selects among those of every
    base, if none is named, and as an id any cell. `left_out` is what all leave out, which ids may say, too.
    Raises ConfigError for a value that does not exist or that names an excluded cell (with the reasons and
    the valid ones), NothingSelected when no cell is left.
    """
    table = make_matrix(config, *bases)
    releases = _releases(config, triton)
    if cells:
        chosen = _by_glob(config, table, cells, bases)
        sm_sets = {_sm_set(config, text) for text in sms}
        chosen = [c for c in chosen if c.triton in releases and (not sm_sets or c.sms in sm_sets)]
    else:
        groups = [_sm_set(config, text) for text in sms]
        chosen = [
            _cell(config, release, group, base)
            for release, base in _pairs(config, releases, bases)
            if triton or release in _base(config, base).releases
            for group in groups or [(sm,) for sm in config.matrix.releases[release].default_sms]
        ]
    if not chosen:
        raise _nothing()
    for cell in (chosen := [_leaving_out(cell, left_out) for cell in chosen]):
        _refuse_excluded(config, cell, table, by_default=not sms and not cells)
    return tuple(dict.fromkeys(chosen))


def select_with_excluded(
    config: Config,
    *,
    triton: Sequence[str] = (),
    sms: Sequence[str] = (),
    cells: Sequence[str] = (),
    bases: Sequence[str] = (),
    left_out: LeftOut = NOTHING,
) -> Matrix:
    """Return every cell within the options, with those that cannot exist as excluded; no options: all.

    Raises ConfigError for a base, a release or an SM that does not exist, NothingSelected when no cell is
    left.
    """
    table = _narrowed(config, triton, sms, cells, bases, left_out)
    if not table.cells:
        raise _nothing()
    return table


def overview(
    config: Config,
    *,
    triton: Sequence[str] = (),
    sms: Sequence[str] = (),
    cells: Sequence[str] = (),
    bases: Sequence[str] = (),
    left_out: LeftOut = NOTHING,
) -> Matrix:
    """Return every cell within the options, with those that cannot exist as excluded; no base: on each.

    Raises as `select_with_excluded`, but what has cells that cannot exist alone is a table, too.
    """
    table = _narrowed(config, triton, sms, cells, bases or tuple(config.bases.bases), left_out)
    if not (table.cells or table.excluded):
        raise _nothing()
    return table


def _narrowed(
    config: Config,
    triton: Sequence[str],
    sms: Sequence[str],
    cells: Sequence[str],
    bases: Sequence[str],
    left_out: LeftOut,
) -> Matrix:
    groups = [_sm_set(config, text) for text in sms] or [(sm,) for sm in config.matrix.sms]
    whole = [
        _cell(config, release, group, base)
        for (release, base), group in itertools.product(
            _pairs(config, _releases(config, triton), bases), groups
        )
    ]
    candidates = dict.fromkeys(whole if not cells else ())
    for text in cells:
        glob, lacking = features.split_id(text)
        matches = [cell for cell in whole if _matches(cell, [glob])] or [
            cell
            for cell in _elsewhere(config, glob, bases)
            if cell.triton in _releases(config, triton) and (not sms or cell.sms in groups)
        ]
        candidates |= dict.fromkeys(replace(cell, left_out=lacking) for cell in matches)
    named = [_leaving_out(cell, left_out) for cell in candidates]
    reasons = {cell: tuple(_reasons(config, cell)) for cell in named}
    possible = tuple(cell for cell in named if not reasons[cell])
    return Matrix(possible, tuple(Excluded(cell, why) for cell, why in reasons.items() if why))


def entry(
    config: Config, triton: str, sms: Iterable[int], base: str, left_out: LeftOut = NOTHING
) -> Cell | Excluded:
    """Return one cell by what identifies it, with the reasons if it cannot exist.

    Raises ConfigError for a release, an SM or a base that does not exist.
    """
    _releases(config, [triton])
    cell = _cell(config, triton, _sm_set(config, sm_list(sms)), base, left_out)
    reasons = tuple(_reasons(config, cell))
    return Excluded(cell, reasons) if reasons else cell


def as_github(cells: Iterable[Cell]) -> str:
    """Return two lines for `$GITHUB_OUTPUT`: `matrix={"include": [...]}` and `count=N`.

    The count is for an `if:` on the job, since GitHub Actions refuses a matrix without entries.
    """
    records = [{**c.record(), "sms": sm_list(c.sms)} for c in cells]
    return f"matrix={json.dumps({'include': records})}\ncount={len(records)}"


def renamed(cells: Iterable[Cell], globs: Sequence[str]) -> list[str]:
    """Return what to say of ids that name the base of a release, which the id of a cell leaves out."""
    return [
        f"{cell.full_id} is called {cell.id}: {cell.base} is the base of {cell.triton}"
        for cell in cells
        if cell.is_default_base and cell.full_id in globs
    ]


def cuda_version(config: Config, cell: Cell) -> str:
    """Return the CUDA version that compiles the cell: the base's own, else the release's."""
    return _base(config, cell.base).cuda or config.matrix.releases[cell.triton].cuda


def _releases(config: Config, names: Sequence[str]) -> tuple[str, ...]:
    """Return the releases named (none: all); ConfigError for one that is not in the matrix."""
    for release in names:
        if release not in config.matrix.releases:
            known = ", ".join(config.matrix.releases)
            raise ConfigError(f"Triton release {release!r} is not in the matrix", hint=f"releases: {known}")
    return tuple(r for r in config.matrix.releases if not names or r in names)


def _pairs(config: Config, releases: Sequence[str], bases: Sequence[str]) -> list[tuple[str, str]]:
    """Return releases and bases, none named: each release with its own.

    A release that one of the named bases carries is left out on those that do not carry it.
    """
    if not bases:
        return [(release, config.matrix.releases[release].base) for release in releases]
    names = tuple(dict.fromkeys(bases))
    carried = {name: _base(config, name).releases for name in names}
    anywhere = set().union(*carried.values())
    return [
        (release, name)
        for release, name in itertools.product(releases, names)
        if release in carried[name] or release not in anywhere
    ]


def _matches(cell: Cell, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs for name in (cell.id, cell.full_id))


def _nothing() -> NothingSelected:
    return NothingSelected("no cell is selected by these options", hint="invoke matrix lists the cells")


def _cell(config: Config, triton: str, sms: tuple[Sm, ...], base: str, left_out: LeftOut = NOTHING) -> Cell:
    return Cell(triton, sms, base, base == config.matrix.releases[triton].base, left_out)


def _leaving_out(cell: Cell, left_out: LeftOut) -> Cell:
    """Return the cell with what the options leave out; ConfigError where its id says another thing."""
    if not left_out or cell.left_out == left_out:
        return cell
    if cell.left_out:
        raise ConfigError(
            f"{cell.id} says what it leaves out, and so do the options: {' '.join(left_out.words())}",
            hint="leave one of them out",
        )
    return replace(cell, left_out=left_out)


def bases_of(config: Config, releases: Collection[str], name: str | None) -> list[str]:
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
        advice = "; ".join(filter(None, (stand_ins(sm, config.matrix.sms) for sm in unknown)))
        raise ConfigError(f"{sm_codes(unknown)} is not in the matrix", hint=advice or known)
    return sms


def _by_glob(config: Config, table: Matrix, globs: Sequence[str], bases: Sequence[str]) -> list[Cell]:
    chosen: list[Cell] = []
    for text in globs:
        glob, left_out = features.split_id(text)
        if matches := [c for c in table.cells if _matches(c, [glob])]:
            cells = matches
        elif refused := [e for e in table.excluded if _matches(e.cell, [glob])]:
            raise _excluded(config, refused[0].cell, refused[0].reasons, table)
        elif others := _elsewhere(config, glob, bases):
            cells = [cell for cell in others if not any(_reasons(config, cell))] or others
        else:
            known = ", ".join(c.id for c in table.cells)
            raise ConfigError(f"no cell is called {text!r}", hint=f"cells: {known}")
        chosen += [replace(cell, left_out=left_out) for cell in cells]
    return chosen


def _elsewhere(config: Config, glob: str, bases: Sequence[str]) -> list[Cell]:
    """Return the cells of every base, if none is named, that a glob matches, else the one whose id it is.

    They may be impossible.
    """
    names = tuple(bases) or tuple(config.bases.bases)
    everywhere = make_matrix(config, *names)
    cells = (*everywhere.cells, *(entry.cell for entry in everywhere.excluded))
    if matches := [cell for cell in cells if _matches(cell, [glob])]:
        return matches
    named = _ID.fullmatch(glob)
    if named is None or named["triton"] not in config.matrix.releases:
        return []
    base = named["base"] or config.matrix.releases[named["triton"]].base
    sms = _sm_set(config, named["sms"])
    return [_cell(config, named["triton"], sms, base)] if base in names else []


def _refuse_excluded(config: Config, cell: Cell, table: Matrix, *, by_default: bool) -> None:
    if reasons := tuple(_reasons(config, cell)):
        defaults = config.place("matrix.yaml", "releases", cell.triton, "default_sms")
        raise _excluded(config, cell, reasons, table, where=defaults if by_default else None)


def _excluded(
    config: Config, cell: Cell, reasons: Sequence[str], table: Matrix, *, where: str | None = None
) -> ConfigError:
    valid = ", ".join(c.id for c in table.cells if (c.triton, c.base) == (cell.triton, cell.base))
    return ConfigError(
        f"{cell.id} cannot be built:" + "".join(f"\n  - {reason}" for reason in reasons),
        where=where,
        hint=f"cells of {cell.triton} on base {cell.base}: {valid}" if valid else _other_bases(config, cell),
    )


def _other_bases(config: Config, cell: Cell) -> str:
    return f"bases for {cell.triton}: {', '.join(bases_of(config, [cell.triton], None)) or 'none'}"


def _reasons(config: Config, cell: Cell) -> Iterator[str]:
    """Yield the reasons why a cell cannot exist, if any."""
    release, base = config.matrix.releases[cell.triton], _base(config, cell.base)
    if len(cell.id) > LONGEST_ID:
        yield f"its id is longer than {LONGEST_ID} characters, and a tag has 128 at most"
    for feature in cell.left_out.all:
        if not config.can_leave_out(cell.triton, feature):
            yield f"no patch leaves {feature} out of its FasterTransformer (patches.yaml, leaves_out)"
    if cell.triton not in base.releases:
        yield f"base {cell.base} carries no image for {cell.triton} ({base.source})"
    cuda = cuda_version(config, cell)
    for sm in cell.sms:
        yield from _sm_reasons(config, sm, cuda, release)


def _sm_reasons(config: Config, sm: Sm, cuda: str, release: ReleaseConfig) -> Iterator[str]:
    fact = config.matrix.sms[sm]
    if Version(cuda) < Version(fact.cuda):
        yield f"CUDA {cuda} is too old for {sm.code}, which needs {fact.cuda} ({fact.source})"
    if fact.before and Version(cuda) >= Version(fact.before):
        yield f"CUDA {cuda} is too new for {sm.code}, which needs one before {fact.before} ({fact.source})"
    if sm not in release.sms.builds and sm not in release.sms.patched:
        yield f"its FasterTransformer does not know {sm.code} ({release.sms.source})"

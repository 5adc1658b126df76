"""The matrix as tables: for each base, Triton releases by SM sets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftbuild import features
from ftbuild.nightly.record import CellRecord, NightlyRun


@dataclass(frozen=True)
class Row:
    """One Triton release; a place is None where the matrix has no such cell."""

    release: str
    cells: tuple[CellRecord | None, ...]


@dataclass(frozen=True)
class Grid:
    """All cells on one base. `columns` are SM sets such as `80` or `80+86`."""

    base: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def grids(run: NightlyRun) -> tuple[Grid, ...]:
    """Return one grid per base, in the order of the run's cells."""
    return tuple(_grid(run, kind) for kind in dict.fromkeys(_kind(cell) for cell in run.cells))


def sms(cell: CellRecord) -> str:
    """Return the SMs of a cell: `80`, `80+86`."""
    return "+".join(str(sm) for sm in cell.sms)


def anchor(cell: str) -> str:
    """Return the id of a cell's element on the page."""
    return "cell-" + re.sub(r"[^\w.-]", "-", cell)


def _kind(cell: CellRecord) -> str:
    """Return what the cells of a grid share: the base, and what they leave out, as the id has it."""
    return f"{cell.base}{features.split_id(cell.cell)[1].suffix}"


def _grid(run: NightlyRun, kind: str) -> Grid:
    cells = {(cell.triton, cell.sms): cell for cell in run.cells if _kind(cell) == kind}
    releases = sorted({release for release, _ in cells})
    sets = sorted({sms for _, sms in cells}, key=lambda sms: (len(sms), sms))
    rows = (Row(release, tuple(cells.get((release, sms)) for sms in sets)) for release in releases)
    return Grid(kind, tuple("+".join(map(str, sms)) for sms in sets), tuple(rows))

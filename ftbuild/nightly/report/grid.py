"""The matrix as people see it: for each base a table of Triton releases by SM sets."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


def grids(night: NightlyRun) -> tuple[Grid, ...]:
    """One grid for each base, in the order of the night's cells."""
    return tuple(_grid(night, base) for base in dict.fromkeys(cell.base for cell in night.cells))


def sms(cell: CellRecord) -> str:
    """The SMs of a cell: `80`, `80+86`."""
    return "+".join(str(sm) for sm in cell.sms)


def anchor(cell: str) -> str:
    """The id of a cell's place on the page."""
    return "cell-" + re.sub(r"[^\w.-]", "-", cell)


def _grid(night: NightlyRun, base: str) -> Grid:
    cells = {(cell.triton, cell.sms): cell for cell in night.cells if cell.base == base}
    releases = sorted({release for release, _ in cells})
    sets = sorted({found for _, found in cells}, key=lambda found: (len(found), found))
    rows = (Row(release, tuple(cells.get((release, found)) for found in sets)) for release in releases)
    return Grid(base, tuple("+".join(map(str, found)) for found in sets), tuple(rows))

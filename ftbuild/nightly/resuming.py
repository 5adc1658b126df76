"""What a resumed nightly run takes from its record: the configuration, and the cells.

A cell of the record never leaves it: one that is not run again stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftbuild import features, matrix
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, NothingSelected
from ftbuild.features import LeftOut
from ftbuild.matrix import Cell, Matrix
from ftbuild.nightly import history, record
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason
from ftbuild.text.reporter import Reporter

_ANEW = "leave out --resume to start a new run"


@dataclass(frozen=True)
class Left:
    """The cells that a resumed run goes on with, and the records of those that stay as they were."""

    table: Matrix
    kept: Mapping[str, CellRecord]


def last(work: Path) -> tuple[Path, NightlyRun]:
    """Return folder and record of the run to resume; ConfigError without one that can be read."""
    last_run = history.last(work)
    if last_run is None:
        folders = history.folders(work)
        raise ConfigError(
            "the record of the last nightly run cannot be read"
            if folders
            else "there is no nightly run to resume",
            where=str(folders[-1] / record.FILE if folders else work / history.FOLDER),
            hint=_ANEW,
        )
    return last_run


def configuration(work: Path, root: Path, named: Path | None) -> Path | None:
    """Return the configuration folder of the run to resume; None where an old record does not have it.

    `root` is the checkout. Raises ConfigError without a run to resume, and if another folder is `named`.
    """
    folder, run = last(work)
    if not run.config:
        return named
    recorded = root / run.config
    if named is not None and named.resolve() != recorded.resolve():
        raise ConfigError(
            f"the run to resume has the configuration {recorded}, not {named}",
            where=str(folder / record.FILE),
            hint=f"leave out --config to resume it; {_ANEW}",
        )
    return recorded


def left(config: Config, run: NightlyRun, chosen: Matrix | None, report: Reporter) -> Left:
    """Return what is left of a run: all of its cells, or those that are `chosen`.

    A cell that is no longer in the configuration is left unchanged, which is reported. Raises NothingSelected
    if no cell of the run is chosen.
    """
    cells, excluded = [], []
    for entry in run.cells:
        try:
            left_out = features.split_id(entry.cell)[1]
            entry_now = matrix.entry(config, entry.triton, entry.sms, entry.base, left_out)
        except ConfigError as gone:
            report(f"[{entry.cell}] stays as it was: {gone.what}")
            continue
        if isinstance(entry_now, Cell):
            cells.append(entry_now)
        elif entry.reason is Reason.EXCLUDED:
            excluded.append(entry_now)
        else:
            report(f"[{entry.cell}] stays as it was: {'; '.join(entry_now.reasons)}")
    if chosen is not None:
        cells = [cell for cell in cells if cell in chosen.cells]
        excluded = [cell for cell in excluded if cell in chosen.excluded]
    if not cells:
        names = ", ".join(entry.cell for entry in run.cells if entry.reason is not Reason.EXCLUDED)
        raise NothingSelected(
            "no cell of the run to resume is selected" if names else "the run to resume has no cell",
            hint=f"its cells: {names}; without a selection all of them" if names else _ANEW,
        )
    table = Matrix(tuple(cells), tuple(excluded))
    again = {_identity(cell) for cell in (*cells, *(entry.cell for entry in excluded))}
    kept = {entry.cell: entry for entry in run.cells if _recorded(entry) not in again}
    return Left(table, kept)


def _identity(cell: Cell) -> tuple[str, tuple[int, ...], str, LeftOut]:
    """Return what a cell keeps when another base becomes the default, which changes its id."""
    return cell.triton, cell.sms, cell.base, cell.left_out


def _recorded(entry: CellRecord) -> tuple[str, tuple[int, ...], str, LeftOut]:
    """Return the same of a record, whose id says what is left out."""
    return entry.triton, entry.sms, entry.base, features.split_id(entry.cell)[1]

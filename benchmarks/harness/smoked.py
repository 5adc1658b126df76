"""The cell of a smoke test, from the record beside its other files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.origin import Measured
from ftbuild.errors import FtbuildError
from ftbuild.gates import records
from ftbuild.gates.report import SMOKE


def cells(folder: Path) -> tuple[Measured, ...]:
    """Return the cell whose images were tested in that folder; none if its record is not there or damaged."""
    try:
        record = records.read(SMOKE, folder)
    except FtbuildError:
        return ()
    return (Measured(record.cell, record.key, record.ids),) if record else ()

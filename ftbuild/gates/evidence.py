"""Evidence that images passed a gate: the record in a cell's work folder, judged by what the gate demands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ftbuild.gates import records, table
from ftbuild.gates.records import Demand, Record
from ftbuild.gates.report import Gate
from ftbuild.plan import Plan

DEMANDS: Mapping[Gate, Callable[[Plan], tuple[Demand, ...]]] = {
    test.gate: test.demands for test in table.REQUIRED
}


def objection(
    gate: Gate, plan: Plan, folder: Path, images: Mapping[str, Collection[str]] | None = None
) -> str | None:
    """Return why the record in `folder` does not show that a gate passed, or None; `images` as in `record`.

    Raises the gate's error when the record is damaged, or when the gate could not test the cell at all.
    """
    record = records.read(gate, folder)
    return against(record, gate, plan, images) if record else f"there is no record of {gate.name}"


def against(
    record: Record, gate: Gate, plan: Plan, images: Mapping[str, Collection[str]] | None = None
) -> str | None:
    """Return why a record that was read does not show that a gate passed, or None; errors as `objection`."""
    return records.objection(record, gate, plan, DEMANDS[gate](plan), images)

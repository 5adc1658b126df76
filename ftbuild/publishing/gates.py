"""The condition for publishing: gate records that are about exactly these images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ftbuild.errors import PublishError
from ftbuild.gates import report
from ftbuild.gates.report import SMOKE, VERIFY, Gate
from ftbuild.plan import Plan

ALL = (VERIFY, SMOKE)


Ids = Mapping[str, Collection[str]]


def require(plan: Plan, folder: Path, images: Ids, gates: Sequence[Gate] = ALL) -> None:
    """Raise PublishError unless `images` passed each gate, by the records in `folder`.

    `images` holds all ids of each image, by kind, since engines do not agree on the id of an image.
    """
    for gate in gates:
        if problem := _problem(plan, folder, images, gate):
            raise PublishError(
                f"{plan.cell.id} is not published: {problem}",
                where=str(folder / gate.record),
                hint=f"invoke {gate.name} with the options of this cell"
                + ("; --allow-unsmoked publishes it beside the tested ones" if gate is SMOKE else ""),
            )


def _problem(plan: Plan, folder: Path, images: Ids, gate: Gate) -> str | None:
    record = report.read(gate, folder)
    if record is None:
        return f"there is no record of {gate.name}"
    if record.key != plan.key:
        return f"the record of {gate.name} is about the inputs {record.key}, not {plan.key}"
    if not record.passed:
        return f"{gate.name} failed: {', '.join(record.failed)}"
    if others := [product for product, ids in images.items() if record.images.get(product) not in ids]:
        return f"{gate.name} tested another {' and '.join(others)} image than the present one"
    return None

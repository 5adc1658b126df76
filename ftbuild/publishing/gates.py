"""The condition for publishing: gate records that are about exactly these images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ftbuild.errors import FtbuildError, PublishError
from ftbuild.gates import evidence
from ftbuild.gates.report import SMOKE, Gate
from ftbuild.plan import Plan

ALL = tuple(evidence.DEMANDS)
Ids = Mapping[str, Collection[str]]


def require(plan: Plan, folder: Path, images: Ids, gates: Sequence[Gate] = ALL) -> None:
    """Raise PublishError unless `images` passed each gate, by the records in `folder`.

    `images` holds all ids of each image, by kind, since engines do not agree on the id of an image.
    """
    for gate in gates:
        try:
            problem = evidence.objection(gate, plan, folder, images)
        except FtbuildError as unusable:
            raise unusable.converted(PublishError) from unusable
        if problem:
            raise PublishError(
                f"{plan.cell.id} is not published: {problem}",
                where=str(folder / gate.record),
                hint=f"invoke {gate.name} with the options of this cell"
                + ("; --allow-unsmoked publishes it beside the tested ones" if gate is SMOKE else ""),
            )

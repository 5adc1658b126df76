"""Records of gates: read back from a cell's work folder, and judged as evidence about images."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ftbuild.errors import FtbuildError
from ftbuild.gates.report import Gate
from ftbuild.plan import Plan
from ftbuild.text import bounded_json
from ftbuild.text.results import State
from ftbuild.text.units import MIB

# A record of the real images has some 100 KB.
MAX_BYTES = 16 * MIB
SHOWN = 4

# One line of printable text, as messages and tables quote it.
Line = Annotated[str, Field(pattern=r"^[ -~]*$", max_length=300)]
# What a record has of everything: the first error ends the reading of a list.
FEW = Field(max_length=10_000, fail_fast=True)
Facts = Annotated[Mapping[str, Any], FEW]
Numbers = Annotated[Mapping[Line, float], FEW]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class RecordedImage(_Strict):
    """An image that a gate tested."""

    id: Line
    tag: Line


class Finding(_Strict):
    """One result of one check."""

    check: Line
    image: Line
    state: State
    detail: str
    hint: str
    facts: Facts


class Record(_Strict):
    """A report as `GateReport.write` wrote it; the fields with a default are those of some gates only."""

    ftbuild: Line
    checks: Line
    gate: Line
    cell: Line
    key: Line
    images: Annotated[Mapping[Line, RecordedImage], FEW]
    passed: bool
    findings: Annotated[tuple[Finding, ...], FEW]
    device: Line = ""
    gpus: Annotated[tuple[Facts, ...], FEW] = ()
    junit: Line = ""
    figures: Annotated[Mapping[Line, Numbers], FEW] = {}
    servers: int = 1
    recipe: Line = ""
    tests: Annotated[Mapping[Line, int], FEW] = {}

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the tested images, by product."""
        return {product: image.id for product, image in self.images.items()}

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the failed checks."""
        return tuple(dict.fromkeys(f.check for f in self.findings if f.state is State.FAIL))


@dataclass(frozen=True)
class Demand:
    """A result that a record must hold: a check of an image, where `served` is set of one served model."""

    check: str
    image: str
    served: str = ""

    def __str__(self) -> str:
        return f"{self.check} ({self.served or self.image})"

    def is_met(self, findings: Iterable[Finding]) -> bool:
        """Return whether one of the findings is this result, passed."""
        return any(
            (f.check, f.image, f.state) == (self.check, self.image, State.OK)
            and (not self.served or f.facts.get("served") == self.served)
            for f in findings
        )


def read(gate: Gate, folder: Path) -> Record | None:
    """Return the record of a gate in a cell's work folder, None when there is none.

    Raises the gate's error when it cannot be read or is not what the gate writes.
    """
    file = folder / gate.record
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as refused:
        raise _unusable(gate, file, f"cannot be read: {refused.strerror}") from refused
    if len(content) > MAX_BYTES:
        raise _unusable(gate, file, f"is larger than {MAX_BYTES} bytes")
    try:
        return bounded_json.model(Record, content)
    except bounded_json.Unfit as wrong:
        raise _unusable(gate, file, f"is damaged: {wrong}") from wrong


def objection(
    record: Record,
    gate: Gate,
    plan: Plan,
    demands: Collection[Demand],
    images: Mapping[str, Collection[str]] | None = None,
) -> str | None:
    """Return why a record does not show that the images of a plan passed a gate, or None.

    `images` holds all ids of each image by product, since engines do not agree on the id of an image; None
    leaves them out of the judgement.
    """
    if (record.gate, record.cell) != (gate.name, plan.cell.id):
        return f"the record of {gate.name} is about {record.gate} of {record.cell}"
    if record.key != plan.key:
        return f"the record of {gate.name} is about the inputs {record.key}, not {plan.key}"
    if record.checks != gate.checks:
        return f"the record of {gate.name} comes from other checks than those of this checkout"
    if record.failed or not record.passed:
        return f"{gate.name} failed: {', '.join(record.failed) or 'no check is named'}"
    if lacking := [demand for demand in demands if not demand.is_met(record.findings)]:
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        return f"{gate.name} has not shown: {', '.join(map(str, lacking[:SHOWN]))}{more}"
    if others := [product for product, ids in (images or {}).items() if record.ids.get(product) not in ids]:
        return f"{gate.name} tested another {' and '.join(others)} image than the present one"
    return None


def _unusable(gate: Gate, file: Path, problem: str) -> FtbuildError:
    hint = f"invoke {gate.name} with the options of this cell"
    return gate.error(f"the record of {gate.name} {problem}", where=str(file), hint=hint)

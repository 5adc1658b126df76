"""The one shape of gates: what each runs on a cell, what it records, and what its record must show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from ftbuild.gates.records import Demand
from ftbuild.gates.report import Gate, GateReport
from ftbuild.gates.subject import Subject
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Skipped:
    """A cell that cannot be tested on this machine, and why."""

    reason: str


class CellTest(Protocol):
    """A gate at work, with the options of its command; `gates.table` lists them all."""

    gate: ClassVar[Gate]
    """Its name, its error, and the record that it writes."""

    @staticmethod
    def demands(plan: Plan) -> tuple[Demand, ...]:
        """Return what a record of a cell that passed shows; the gate's error where nothing is tested."""

    def prepare(self, subject: Subject) -> None:
        """Make what the test needs and this machine can make without a GPU; `run` makes what is lacking."""

    def run(self, subject: Subject) -> GateReport | Skipped:
        """Test the images of a cell, and write the record; raises the gate's error, or HostError."""


@dataclass(frozen=True)
class Place:
    """Where cells are tested: the engine with their images, the work folder, the store of git objects."""

    client: docker.DockerClient
    work: Path
    cache: Path

    def subject(self, plan: Plan, report: Reporter) -> Subject:
        """Return a cell under test."""
        return Subject(self.client, plan, plan.folder(self.work), self.cache, report)

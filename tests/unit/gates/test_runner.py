"""The loop over cells: one failed cell does not stop the others, and the codes add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.errors import HostError, Interrupted, SmokeError
from ftbuild.gates import runner
from ftbuild.gates.cell_test import Place, Skipped
from ftbuild.gates.records import Demand
from ftbuild.gates.report import SMOKE, Gate, GateReport
from ftbuild.gates.subject import Subject
from ftbuild.plan import Plan
from ftbuild.text.results import CheckResult, State


@pytest.fixture
def cells(config: Config) -> list[Plan]:
    return plans(config, Selection(config.folder, ["22.12"], ["70", "80", "90"]))


def report(plan: Plan, state: State) -> GateReport:
    return GateReport(SMOKE, plan, {"runtime": "sha256:1"}, (CheckResult("answers", state),))


@dataclass(frozen=True)
class Stub:
    """A gate that does what a test says."""

    test: Callable[[Subject], GateReport | Skipped]
    gate: ClassVar[Gate] = SMOKE

    @staticmethod
    def demands(plan: Plan) -> tuple[Demand, ...]:
        return ()

    def prepare(self, subject: Subject) -> None:
        subject.report("preparing")

    def run(self, subject: Subject) -> GateReport | Skipped:
        return self.test(subject)


NOWHERE: Any = Place(None, Path("work"), Path("cache"))  # type: ignore[arg-type]


def silent(message: str) -> None:
    """Hear nothing."""


def test_every_cell_is_tested_whatever_happened_to_those_before(cells: list[Plan]) -> None:
    first, second, third = cells
    heard: list[str] = []

    def test(subject: Subject) -> GateReport | Skipped:
        subject.report("testing")
        if subject.plan is first:
            raise HostError("no GPU")
        return Skipped("wrong GPU") if subject.plan is second else report(subject.plan, State.OK)

    done = runner.run(Stub(test), cells, NOWHERE, heard.append)
    assert [found.plan for found in done.reports] == [third]
    assert done.codes == (HostError.exit_code, 0)
    assert done.skipped == {second.cell.id: "wrong GPU"}
    assert done.exit_code() == HostError.exit_code
    assert heard == [
        f"[{first.cell.id}] testing",
        f"[{first.cell.id}] failed: no GPU",
        f"[{second.cell.id}] testing",
        f"[{second.cell.id}] skipped: wrong GPU",
        f"[{third.cell.id}] testing",
    ]


def test_a_failed_check_gives_the_code_of_its_gate(
    cells: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Stub(lambda subject: report(subject.plan, State.FAIL))
    done = runner.run(failing, cells[:1], NOWHERE, silent)
    assert done.exit_code() == SmokeError.exit_code
    done.show("json")
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["cell"], record["passed"]) == (cells[0].cell.id, False)
    done.show("human")
    assert "failed: 1, warnings: 0" in capsys.readouterr().out


def test_a_run_that_skipped_every_cell_has_tested_nothing(cells: list[Plan]) -> None:
    done = runner.run(Stub(lambda subject: Skipped("wrong GPU")), cells, NOWHERE, silent)
    with pytest.raises(HostError, match=f"no GPU here runs {cells[0].cell.id}, {cells[1].cell.id}"):
        done.exit_code()


def test_a_prepared_cell_is_a_success(cells: list[Plan]) -> None:
    heard: list[str] = []
    failing = Stub(lambda subject: report(subject.plan, State.FAIL))
    done = runner.run(failing, cells, NOWHERE, heard.append, only_prepare=True)
    assert (done.reports, done.exit_code()) == ((), 0)
    assert heard == [f"[{plan.cell.id}] preparing" for plan in cells]


def test_an_interruption_ends_the_loop(cells: list[Plan]) -> None:
    tested: list[Plan] = []

    def test(subject: Subject) -> GateReport:
        tested.append(subject.plan)
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        runner.run(Stub(test), cells, NOWHERE, silent)
    assert tested == cells[:1]

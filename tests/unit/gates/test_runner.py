"""The loop over cells: one failed cell does not stop the others, and the codes add up."""

from __future__ import annotations

import json

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.errors import HostError, Interrupted, SmokeError
from ftbuild.gates import runner
from ftbuild.gates.report import SMOKE, GateReport
from ftbuild.gates.runner import Skipped
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult, State


@pytest.fixture
def cells(config: Config) -> list[Plan]:
    return plans(config, Selection(config.folder, ["22.12"], ["70", "80", "90"]))


def report(plan: Plan, state: State) -> GateReport:
    return GateReport(SMOKE, plan, {"runtime": "sha256:1"}, (CheckResult("answers", state),))


def test_every_cell_is_tested_whatever_happened_to_those_before(cells: list[Plan]) -> None:
    first, second, third = cells
    heard: list[str] = []

    def test(plan: Plan, tell: Reporter) -> GateReport | Skipped | None:
        tell("testing")
        if plan is first:
            raise HostError("no GPU")
        return Skipped("wrong GPU") if plan is second else report(plan, State.OK)

    done = runner.run(cells, test, heard.append)
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
    done = runner.run(cells[:1], lambda plan, tell: report(plan, State.FAIL), lambda message: None)
    assert done.exit_code() == SmokeError.exit_code
    done.show("json")
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["cell"], record["passed"]) == (cells[0].cell.id, False)
    done.show("human")
    assert "failed: 1, warnings: 0" in capsys.readouterr().out


def test_a_run_that_skipped_every_cell_has_tested_nothing(cells: list[Plan]) -> None:
    done = runner.run(cells, lambda plan, tell: Skipped("wrong GPU"), lambda message: None)
    with pytest.raises(HostError, match=f"no GPU here runs {cells[0].cell.id}, {cells[1].cell.id}"):
        done.exit_code()


def test_a_prepared_cell_is_a_success(cells: list[Plan]) -> None:
    done = runner.run(cells, lambda plan, tell: None, lambda message: None)
    assert (done.reports, done.exit_code()) == ((), 0)


def test_an_interruption_ends_the_loop(cells: list[Plan]) -> None:
    tested: list[Plan] = []

    def test(plan: Plan, tell: Reporter) -> None:
        tested.append(plan)
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        runner.run(cells, test, lambda message: None)
    assert tested == cells[:1]

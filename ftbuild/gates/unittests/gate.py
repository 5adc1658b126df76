"""Upstream's unit tests as a gate with a GPU; publishing does not require it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ftbuild.build.run import BuildOptions
from ftbuild.engine import container, gpu
from ftbuild.engine.container import ContainerError
from ftbuild.errors import SmokeError
from ftbuild.gates.cell_test import Skipped
from ftbuild.gates.records import Demand
from ftbuild.gates.report import Gate, GateReport
from ftbuild.gates.smoke import gate as smoke
from ftbuild.gates.subject import Subject
from ftbuild.gates.unittests import image
from ftbuild.gates.unittests.image import PRODUCT, RUN, Recipe
from ftbuild.host import locks
from ftbuild.matrix import Cell
from ftbuild.plan import Plan
from ftbuild.text.results import CheckResult, State

GATE = Gate("unittest", SmokeError, ("gates/unittests",))
# Far more than they take: each suite has a limit of its own (runner.py).
SECONDS = 4 * 3600
SHOWN, WIDTH = 3, 160


@dataclass(frozen=True)
class UnitTests:
    """The gate as a `CellTest`: what the images are made of, by cell, and how they are built."""

    recipes: Mapping[Cell, Recipe]
    options: BuildOptions
    gate: ClassVar[Gate] = GATE

    @staticmethod
    def demands(plan: Plan) -> tuple[Demand, ...]:
        """Return nothing: no image has to pass upstream's tests."""
        return ()

    def prepare(self, subject: Subject) -> None:
        """Build the image, if the tests can run; errors as those of a build."""
        if not subject.plan.cell.left_out:
            image.ensure(subject, self.recipes[subject.plan.cell], self.options)

    def run(self, subject: Subject) -> GateReport | Skipped:
        """Build the image, and run it while no other command works on the cell; a lean one is skipped."""
        if lacking := subject.plan.cell.left_out.short():
            return Skipped(f"upstream's tests need what it leaves out: {', '.join(lacking)}")
        made_of = self.recipes[subject.plan.cell]
        made = image.ensure(subject, made_of, self.options)
        with locks.cell(subject.folder, subject.report):
            return run(subject, made, made_of)


def run(subject: Subject, made: str, made_of: Recipe) -> GateReport | Skipped:
    """Run every test of `made`, the image that `image.ensure` built, and write the record.

    The cell is skipped when no GPU here runs its machine code. Raises SmokeError when the tests cannot be run
    at all, HostError when containers get no GPU.
    """
    plan = subject.plan
    access = smoke.find_gpus(subject.client, plan, PRODUCT)
    if reason := smoke.unfit(plan, access):
        return Skipped(reason)
    subject.report(f"testing on {access.gpus[0]}, some minutes")
    try:
        output = container.run(
            subject.client,
            made,
            f"{RUN} --json || [ $? -eq 1 ]",
            devices=gpu.requests(access.style),
            seconds=SECONDS,
        )
    except ContainerError as broken:
        raise SmokeError(f"the unit tests could not be run: {broken.what}", where=made) from broken
    suites = json.loads(output)
    counted = counts(suites)
    gate_report = GateReport(
        GATE,
        plan,
        {PRODUCT: made},
        tuple(result(suite) for suite in suites),
        facts={"gpus": [asdict(g) for g in access.gpus], "recipe": made_of.key, "tests": counted},
        notes=(sums(counted),),
    )
    gate_report.write(subject.folder)
    return gate_report


def result(suite: Mapping[str, Any]) -> CheckResult:
    """Return the result of a suite of runner.py, with its first failures and the last line of each."""
    program, name, failed = suite["program"], suite["suite"], suite["failed"]
    state = State.FAIL if failed else State.OK if suite["passed"] else State.SKIP
    details = [f"{sums(counts([suite]))}, {suite['seconds']:.1f} s", *map(_failure, failed[:SHOWN])]
    if len(failed) > SHOWN:
        details.append(f"and {len(failed) - SHOWN} more")
    check = name if name == program else f"{program}: {name}"
    return CheckResult(check, state, "\n".join(details), subject=PRODUCT, facts=dict(suite))


def _failure(failure: Mapping[str, str]) -> str:
    return ": ".join([failure["test"], *failure["said"].splitlines()[-1:]])[:WIDTH]


def counts(suites: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped."""
    return {
        "passed": sum(suite["passed"] for suite in suites),
        "failed": sum(len(suite["failed"]) for suite in suites),
        "skipped": sum(len(suite["skipped"]) for suite in suites),
    }


def sums(counted: Mapping[str, int]) -> str:
    """Return counts as text: `20 passed, 1 failed, 0 skipped`."""
    return ", ".join(f"{number} {state}" for state, number in counted.items())

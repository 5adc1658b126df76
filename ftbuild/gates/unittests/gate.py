"""Upstream's unit tests as a gate with a GPU; publishing does not require it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ftbuild.engine import container, gpu
from ftbuild.engine.container import ContainerError
from ftbuild.errors import SmokeError
from ftbuild.gates.report import Gate, GateReport
from ftbuild.gates.runner import Skipped
from ftbuild.gates.smoke import gate as smoke
from ftbuild.gates.subject import Subject
from ftbuild.gates.unittests.image import PRODUCT, RUN, Recipe
from ftbuild.text.results import CheckResult, State

GATE = Gate("unittest", SmokeError, ("gates/unittests",))
# Far more than they take: each suite has a limit of its own (runner.py).
SECONDS = 4 * 3600
SHOWN, WIDTH = 3, 160


def run(subject: Subject, image: str, made_of: Recipe) -> GateReport | Skipped:
    """Run every test of `image`, which `image.ensure` made; write the record into the cell's work folder.

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
            image,
            f"{RUN} --json || [ $? -eq 1 ]",
            devices=gpu.requests(access.style),
            seconds=SECONDS,
        )
    except ContainerError as broken:
        raise SmokeError(f"the unit tests could not be run: {broken.what}", where=image) from broken
    suites = json.loads(output)
    counted = counts(suites)
    found = GateReport(
        GATE,
        plan,
        {PRODUCT: image},
        tuple(result(suite) for suite in suites),
        facts={"gpus": [asdict(g) for g in access.gpus], "recipe": made_of.key, "tests": counted},
        notes=(sums(counted),),
    )
    found.write(subject.folder)
    return found


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

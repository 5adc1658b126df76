"""Runs a cell's unit tests on a GPU, and says what they found; publishing does not ask for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.engine import container, gpu
from ftbuild.engine.gpu import Access
from ftbuild.errors import SmokeError, VerifyError
from ftbuild.gates.report import Finding, Gate, Report, State, Verdict
from ftbuild.gates.unittests.image import PRODUCT, RUN, Recipe
from ftbuild.plan import Plan
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

GATE = Gate("unittest", SmokeError)
# Far more than they take: each suite has a limit of its own (runner.py).
SECONDS = 4 * 3600
SHOWN, WIDTH = 3, 160


def run(
    client: docker.DockerClient,
    plan: Plan,
    made_of: Recipe,
    image: str,
    access: Access,
    folder: Path,
    *,
    report: Reporter,
) -> Report:
    """Run every test of `image` on the GPUs, and put the record into `folder`.

    Raises SmokeError when the tests cannot be run at all.
    """
    report(f"testing on {access.gpus[0]}, some minutes")
    try:
        said = container.run(
            client,
            image,
            f"{RUN} --json || [ $? -eq 1 ]",
            devices=gpu.requests(access.style),
            seconds=SECONDS,
        )
    except VerifyError as broken:
        raise SmokeError(f"the unit tests could not be run: {broken.what}", where=image) from broken
    suites = json.loads(said)
    found = Report(
        GATE,
        plan,
        {PRODUCT: image},
        tuple(finding(suite) for suite in suites),
        facts={"gpus": [asdict(g) for g in access.gpus], "recipe": made_of.key, "tests": counts(suites)},
    )
    found.write(folder)
    return found


def finding(suite: Mapping[str, Any]) -> Finding:
    """A suite as runner.py tells of it; the first failures with the last line of what each said."""
    program, name, failed = suite["program"], suite["suite"], suite["failed"]
    state = State.FAIL if failed else State.OK if suite["passed"] else State.SKIP
    details = [f"{sums(counts([suite]))}, {suite['seconds']:.1f} s", *map(_failure, failed[:SHOWN])]
    if len(failed) > SHOWN:
        details.append(f"and {len(failed) - SHOWN} more")
    check = name if name == program else f"{program}: {name}"
    return Finding(check, PRODUCT, Verdict(state, "\n".join(details), facts=dict(suite)))


def _failure(failure: Mapping[str, str]) -> str:
    return ": ".join([failure["test"], *failure["said"].splitlines()[-1:]])[:WIDTH]


def counts(suites: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many tests passed, failed and were skipped."""
    return {
        "passed": sum(suite["passed"] for suite in suites),
        "failed": sum(len(suite["failed"]) for suite in suites),
        "skipped": sum(len(suite["skipped"]) for suite in suites),
    }


def sums(counted: Mapping[str, int]) -> str:
    """Counts as words: `20 passed, 1 failed, 0 skipped`."""
    return ", ".join(f"{number} {state}" for state, number in counted.items())

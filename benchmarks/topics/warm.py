"""Warm builds: nothing changed, one leaf source changed, another SM, a machine with a shared cache."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.harness import compiles, requirements
from benchmarks.harness.compiles import Compile, Machine
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace, measured
from ftbuild.build import machine
from ftbuild.engine import daemon
from ftbuild.plan import Plan
from ftbuild.sm import sm_list
from ftbuild.text.reporter import to_stderr
from testing.storage import PROGRAM, redis

NAME = "warm"
# 2: also the part of all sources of the other SM that ccache has, which is less than that of the common ones.
DEFINITION = 2
UNCHANGED_SECONDS = 3.0
LEAF_RATIO = 0.05
HIT_RATE = 0.95
# Nothing in either stack includes it, or calls the addition.
LEAF = "ft/src/fastertransformer/utils/mpi_utils.cc"
CHANGE = '\nextern "C" const char* added_by_a_benchmark() { return "%s"; }\n'
# Without it, ccache does not store hits of its own folder remotely (ccache(1), reshare).
RESHARED = {"CCACHE_RESHARE": "true"}
HOST_SOURCES = (".cc", ".cpp")
OTHER_SMS = (86, 80)


def needs(workspace: Workspace) -> str | None:
    """Require an engine and Debian's Redis."""
    return requirements.engine() or requirements.program(PROGRAM)


def run(workspace: Workspace) -> Result:
    """Compile a cell on one machine, shared, for another SM and changed, and on a second machine."""
    plan = workspace.plan()
    unchanged = _unchanged(workspace, plan)
    first, cold = compiles.cold(workspace)
    second = Machine(workspace)
    with redis(daemon.connect(), workspace.work) as storage:
        shared = {machine.REMOTE_STORAGE: storage}
        to_stderr("the first machine fills the shared cache")
        first.compile(plan, settings=shared | RESHARED)
        to_stderr("a second machine, with the shared cache only")
        remote = second.compile(plan, settings=shared)
    to_stderr("the first machine, another SM")
    sm = next(sm for sm in OTHER_SMS if (sm,) != plan.cell.sms)
    other_plan = workspace.plan_for(sm)
    other = first.compile(other_plan)
    to_stderr("the first machine, one leaf source changed")
    leaf = first.compile(plan, edited={LEAF: CHANGE % first.name})
    made = {"cold": cold, "leaf": leaf, "other SM": other, "second machine": remote}
    data = {
        "other cell": other_plan.cell.id,
        "unchanged": unchanged,
        **{name: c.as_dict() for name, c in made.items()},
        "sources of the other SM": dict(made["other SM"].sources),
    }
    results = [*figures(unchanged, made, workspace.real), of_all(data)]
    cells = [measured(plan), measured(other_plan)]
    return workspace.result(NAME, results, data, cells=cells, definition=DEFINITION)


def figures(unchanged: list[float], made: Mapping[str, Compile], real: bool) -> list[Figure]:
    """Return the figures; a changed leaf has a goal for the real sources only: the sample is too quick."""
    cold, leaf = made["cold"], made["leaf"]
    # Without the other SM's machine code, which is C++ text.
    hits, sources = made["other SM"].hits(*HOST_SOURCES, of=cold)
    compiled = len(made["second machine"].jobs)
    goal = LEAF_RATIO if real else None
    how = f"measured, {len(cold.jobs)} units cold"
    return [
        Figure(
            Topic.WARM,
            "nothing changed: `invoke build`, wall time",
            statistics.median(unchanged),
            "s",
            UNCHANGED_SECONDS,
            f"measured, median of {len(unchanged)}",
        ),
        Figure(
            Topic.WARM,
            f"one leaf `.cc` changed: CPU ({leaf.cpu:.0f} s) / cold ({cold.cpu:.0f} s)",
            leaf.cpu / cold.cpu,
            "",
            goal,
            f"{how}, {len(leaf.jobs)} changed; compile and link",
        ),
        Figure(
            Topic.WARM,
            f"one leaf `.cc` changed: wall ({leaf.wall:.0f} s) / cold ({cold.wall:.0f} s)",
            leaf.wall / cold.wall,
            "",
            None,
            "measured, from the first compile's start to the last one's end",
        ),
        Figure(
            Topic.WARM,
            "another SM of the release: part of their common `.cc` and `.cpp` that ccache has",
            hits / sources,
            "",
            HIT_RATE,
            f"measured, {hits} of {sources} sources in ccache's statistics log",
            at_most=False,
        ),
        Figure(
            Topic.WARM,
            "second machine, empty cache, shared Redis: units compiled",
            compiled,
            "units",
            0,
            f"measured, {len(made['second machine'].sources)} sources; its own caches on the same engine",
        ),
    ]


def of_all(data: Mapping[str, Any]) -> Figure:
    """Return the part of all the C++ sources of the other SM, of which some are its machine code as text."""
    hits = [hit for source, hit in data["sources of the other SM"].items() if source.endswith(HOST_SOURCES)]
    how = f"measured, {sum(hits)} of {len(hits)} sources in ccache's statistics log"
    return Figure(
        Topic.WARM,
        "another SM of the release: part of all its `.cc` and `.cpp` that ccache has",
        sum(hits) / len(hits),
        "",
        None,
        how,
    )


def recomputed(result: Result) -> Result:
    """Return the record with the figures of today: those of the common sources are not in its data."""
    if result.definition == DEFINITION:
        return result
    return replace(result, figures=(*result.figures, of_all(result.data)), definition=DEFINITION)


def _unchanged(workspace: Workspace, plan: Plan) -> list[float]:
    """Return the seconds of the command with existing images, which the first run builds."""
    sms = sm_list(plan.cell.sms)
    chosen = ["--triton", plan.cell.triton, "--sm", sms, "--base", plan.cell.base, "--progress", "plain"]
    to_stderr("nothing changed: the images first")
    workspace.invoke("build", *chosen)
    return [workspace.invoke("build", *chosen).wall for _ in range(workspace.rounds)]

"""The record of a measurement, which later starts can be added to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.figure import Result
from benchmarks.topics.traffic import DEFINITION, report
from benchmarks.topics.traffic.job import Found, Job
from benchmarks.topics.traffic.measure import Plan, Session
from ftbuild.errors import ConfigError

# What all starts in a record share.
_SAME = ("family", "shape", "data_type", "streamed", "gpu", "ours", "limits", "config", *report.ON_ONE_GPU)


def data(outcome: Found) -> dict[str, Any]:
    """Return all times and the settings of a measurement, as JSON has them."""
    job = outcome.job
    return described({**outcome.where, **settings(job)}, job.plan, outcome.sessions, outcome.failures)


def settings(job: Job) -> dict[str, Any]:
    """Return the settings of a measurement."""
    shape = job.shape
    return {
        "gpus": job.gpus,
        "instances": job.instances,
        "model": shape.name,
        "family": shape.family,
        "shape": asdict(shape),
        "parameters": shape.parameters,
        "data_type": job.data_type,
        "streamed": job.streamed,
        "limits": asdict(job.limits),
        "config": dict(job.parameters),
        "ours": job.variants[0].name,
    }


def described(
    about: Mapping[str, Any], plan: Plan, sessions: Sequence[Session], failures: Mapping[str, str]
) -> dict[str, Any]:
    """Return what `about` says of the measurement with all that was measured, as JSON has it."""
    measured = {
        "traces": plan.traces,
        "failures": dict(failures),
        "sessions": [asdict(session) for session in sessions],
    }
    written: dict[str, Any] = json.loads(json.dumps({**about, **measured}))
    return written


def together(earlier: Mapping[str, Any], later: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Return the data of an earlier run with the starts of a later one; ConfigError if they differ otherwise.

    Loads may differ: each figure is over the starts that had its load.
    """
    earlier, later = {**report.ON_ONE_GPU, **earlier}, {**report.ON_ONE_GPU, **later}
    if other := [name for name in _SAME if earlier.get(name) != later[name]]:
        what = f"--append: the record is of another {other[0]}: {earlier.get(other[0])}"
        raise ConfigError(what, where=str(where), hint="another --out, or without --append")
    return {
        **later,
        "traces": {**earlier["traces"], **later["traces"]},
        "failures": {**earlier["failures"], **later["failures"]},
        "sessions": [*earlier["sessions"], *later["sessions"]],
    }


def filled(empty: Result, of: Mapping[str, Any]) -> Result:
    """Return a record with this data, and the figures and charts that follow from it."""
    cell = empty.origin.cells[0].cell if empty.origin and empty.origin.cells else ""
    return replace(
        empty,
        data=of,
        figures=tuple(figure.named(cell) for figure in report.figures(of)),
        charts=tuple(report.charts(of)),
        definition=DEFINITION,
        subject=report.subject(of),
    )

"""Open holes of images as text and as JSON, and the exit code that they mean."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from ftbuild.audit import severity
from ftbuild.audit.holes import Finding, Report
from ftbuild.audit.osv import Database
from ftbuild.errors import VerifyError
from ftbuild.text import tables

FailOn = Literal["critical", "high", "medium", "low", "any", "none"]
_TITLES = ("Hole", "Class", "Component", "Version", "Fixed in", "Says")
_SHOWN_BY = 2


def exit_code(reports: Iterable[Report], fail_on: FailOn) -> int:
    """Return VerifyError's code when an image has an open hole of the class `fail_on` or a worse one.

    A hole without a score counts for `any` only.
    """
    if fail_on == "none":
        return 0
    least = 0.0 if fail_on == "any" else severity.CLASSES[fail_on]
    scores = [finding.score for report in reports for finding in report.open]
    return VerifyError.exit_code if any(_reaches(score, fail_on, least) for score in scores) else 0


def as_json(reports: Sequence[Report], databases: Sequence[Database], known: str) -> str:
    """Return everything as JSON; `known` is the day up to which holes.yaml knows holes."""
    return json.dumps(
        {
            "known": known,
            "databases": [_database(database) for database in databases],
            "images": [
                {
                    "images": list(report.contents.images),
                    "components": len(report.contents.components),
                    "counts": dict(report.counts()),
                    "open": [_finding(finding) for finding in report.open],
                    "stated": [_finding(finding) for finding in report.stated],
                    "undecided": dict(report.undecided),
                    "unchecked": dict(report.unchecked),
                    "unversioned": list(report.contents.unversioned),
                }
                for report in reports
            ],
        },
        indent=2,
    )


def render(reports: Sequence[Report], databases: Sequence[Database], known: str) -> str:
    """Return everything as text."""
    read = [_read(database) for database in databases] or ["no database: only what holes.yaml knows"]
    return "\n".join([*read, f"holes.yaml: bulletins up to {known}", *map(_section, reports)])


def _reaches(score: float | None, fail_on: FailOn, least: float) -> bool:
    return fail_on == "any" if score is None else score >= least


def _database(database: Database) -> dict[str, Any]:
    return {
        "file": str(database.file),
        "records": database.records,
        "matching": len(database.entries),
        "skipped": dict(database.skipped),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "severity": finding.severity}


def _read(database: Database) -> str:
    return f"{database.file.name}: records: {database.records}{_listed('; skipped: ', database.skipped)}"


def _section(report: Report) -> str:
    rows = [
        (
            finding.id,
            finding.severity,
            finding.component,
            finding.version,
            finding.fixed,
            ", ".join(finding.by[:_SHOWN_BY]) + (", ..." if len(finding.by) > _SHOWN_BY else ""),
        )
        for finding in report.open
    ]
    counts = report.counts()
    classes = {name: counts[name] for name in (*severity.CLASSES, "none", severity.UNKNOWN) if counts[name]}
    contents = report.contents
    lines = [
        "",
        ", ".join(contents.images),
        *([tables.render(_TITLES, rows)] if rows else []),
        f"components: {len(contents.components)}, open holes: {len(rows)}{_listed(': ', classes)}",
        *([f"not in these images, says holes.yaml: {_ids(report.stated)}"] if report.stated else []),
        *([f"no database is about{_listed(' ', report.unchecked)}"] if report.unchecked else []),
        *(
            [f"records without versions that can be compared{_listed(', for ', report.undecided)}"]
            if report.undecided
            else []
        ),
        *([f"of unknown release: {', '.join(contents.unversioned)}"] if contents.unversioned else []),
    ]
    return "\n".join(lines)


def _ids(findings: Iterable[Finding]) -> str:
    return ", ".join(finding.id for finding in findings)


def _listed(before: str, counted: Mapping[str, int]) -> str:
    return before + ", ".join(f"{name}: {count}" for name, count in counted.items()) if counted else ""

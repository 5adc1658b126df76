"""The JSON form of an audit's results, alone and within the report of a nightly run."""

from __future__ import annotations

from typing import Any

from ftbuild.text.results import CheckResult, State


def as_dict(result: CheckResult) -> dict[str, str]:
    """Return what was looked at, its state, and the detail."""
    return {"what": result.check, "state": result.state.value, "detail": result.detail}


def from_dict(record: Any) -> CheckResult:
    """Return the result that `as_dict` wrote; raise ValueError for anything else."""
    try:
        what, state, detail = record["what"], State(record["state"]), record["detail"]
    except (KeyError, TypeError) as broken:
        raise ValueError(f"not a result of an audit: {record!r}") from broken
    if not (isinstance(what, str) and isinstance(detail, str)):
        raise ValueError(f"not a result of an audit: {record!r}")
    return CheckResult(what, state, detail)

"""The outcome of one check on one image, before it gets the names of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ftbuild.text.results import State

SHOWN = 8
REBUILD = "invoke build --rebuild with the options of this cell"
REPORT_BUG = f"{REBUILD}; if the error persists, the recipe is wrong: dockerfiles/triton-ft.Dockerfile"


@dataclass(frozen=True)
class Verdict:
    """An outcome: one line or more, the next step after a failure, and figures for the record."""

    state: State
    detail: str
    hint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def judge(problems: Iterable[str], fine: str, hint: str, facts: Mapping[str, Any] | None = None) -> Verdict:
    """Return a failure with the first `SHOWN` problems, or success with `fine` when there are none."""
    problem_list = list(problems)
    if not problem_list:
        return Verdict(State.OK, fine, facts=facts or {})
    more = [f"and {len(problem_list) - SHOWN} more"] if len(problem_list) > SHOWN else []
    return Verdict(State.FAIL, "\n".join([*problem_list[:SHOWN], *more]), hint, facts or {})

"""Results of checks: one shape for gates, doctor, audit and acceptance test, and its rendering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ftbuild.text import tables


class State(StrEnum):
    """The outcome of a check, worst first. `SKIP`: the check could not be made, and that is acceptable."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    OK = "ok"


_AT_THE_END = {State.WARN: 1, State.FAIL: 2}


@dataclass(frozen=True)
class CheckResult:
    """One result of one check. `hint` is the next step, `facts` are figures for the record.

    `subject` is what was checked where a check applies to several subjects, for example a product's image.
    """

    check: str
    state: State
    detail: str = ""
    hint: str = ""
    subject: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The check with its subject, if it has one: `machine code (sdk)`."""
        return f"{self.check} ({self.subject})" if self.subject else self.check


class _Telling:
    """How hints are told: commands add the options that they were given."""

    change: Callable[[str], str] | None = None


@contextmanager
def telling(change: Callable[[str], str]) -> Iterator[None]:
    """Change the hints that are shown within the block; those of records stay."""
    before, _Telling.change = _Telling.change, change
    try:
        yield
    finally:
        _Telling.change = before


def as_shown(hint: str) -> str:
    """Return a hint as it is shown."""
    return _Telling.change(hint) if _Telling.change else hint


def failed(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the results whose state is `FAIL`."""
    return tuple(result for result in results if result.state is State.FAIL)


def worst_first(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Sort by state in the order of `State`; results of one state keep their order."""
    order = list(State)
    return sorted(results, key=lambda result: order.index(result.state))


def render(results: Sequence[CheckResult], *, subject: str = "Subject") -> str:
    """Return a table and a line of counts.

    Warnings and then failures come last, next to the counts: a terminal shows the end. `subject` is the title
    of the column of subjects, which is left out when no result has one. A hint stands below its result; one
    that consecutive results share stands below the last of them.
    """
    results = sorted(results, key=lambda result: _AT_THE_END.get(result.state, 0))
    following = [result.hint for result in results[1:]] + [""]
    with_subject = any(result.subject for result in results)
    rows = [
        (
            result.state.value,
            result.check,
            *([result.subject] if with_subject else []),
            result.detail if result.hint in ("", after) else f"{result.detail}\n-> {as_shown(result.hint)}",
        )
        for result, after in zip(results, following, strict=True)
    ]
    titles = ("State", "Check", *([subject] if with_subject else []), "Detail")
    return f"{tables.render(titles, rows)}\n{counts(results)}"


def counts(results: Iterable[CheckResult]) -> str:
    """Return `failed: 1, warnings: 2`, and the number of skipped checks if there are any."""
    states = [result.state for result in results]
    line = f"failed: {states.count(State.FAIL)}, warnings: {states.count(State.WARN)}"
    skipped = states.count(State.SKIP)
    return f"{line}, skipped: {skipped}" if skipped else line

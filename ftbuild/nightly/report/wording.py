"""Words, symbols and colours of an outcome, the same in every report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ftbuild.errors import Interrupted
from ftbuild.nightly.record import BuilderRecord, CellRecord, NightlyRun, Reason, State
from ftbuild.text import results, units
from ftbuild.text.results import CheckResult


@dataclass(frozen=True)
class Look:
    """A symbol, a word, and the tone (good, bad, error, waiting or quiet) that decides the colour."""

    symbol: str
    word: str
    tone: str


_DASH = "\N{EN DASH}"
_STATES: Mapping[State, Look] = {
    State.PASSED: Look("✓", "passed", "good"),
    State.FAILED: Look("✗", "failed", "bad"),
    State.ERROR: Look("!", "error", "error"),
    State.SKIPPED: Look(_DASH, "skipped", "quiet"),
}
_SKIPS: Mapping[Reason, Look] = {
    Reason.PUBLISHED: Look("=", "already published", "quiet"),
    Reason.NO_GPU: Look("○", "untested", "waiting"),
    Reason.NOT_RUN: Look("…", "not run", "waiting"),
    Reason.EXCLUDED: Look(_DASH, "excluded", "quiet"),
}
_MEANINGS: Mapping[Reason, str] = {
    Reason.PATCH: "a patch does not apply",
    Reason.BUILD: "it does not compile",
    Reason.VERIFY: "a check of verify failed",
    Reason.SMOKE: "the server gave wrong answers, or none",
    Reason.PUBLISH: "it could not be published",
    Reason.FETCH: "its sources could not be fetched",
    Reason.MACHINE: "the machine lacks a prerequisite",
    Reason.UNEXPECTED: "an unexpected failure",
    Reason.EXCLUDED: "this image cannot exist",
    Reason.NO_GPU: "built and verified, but not smoke-tested",
    Reason.PUBLISHED: "already in the registry",
    Reason.NOT_RUN: "the run ended before its turn",
}
_ADVICE: Mapping[Reason, str] = {
    Reason.PATCH: "invoke patches shows the hunk that does not apply; see docs/adding-a-patch.md",
    Reason.BUILD: "read the log from its first error; the command repeats the build from where it failed",
    Reason.VERIFY: "invoke verify repeats the checks; docs/verify.md explains each one",
    Reason.SMOKE: "read the server's last lines; invoke smoke repeats the test on a machine with this GPU",
    Reason.PUBLISH: "check the registry's answer and your login; the image is built, so a retry is quick",
    Reason.FETCH: "check the network, the proxy and invoke lock --check; the next run retries",
    Reason.MACHINE: "invoke doctor lists what this machine lacks, and how to fix it",
    Reason.UNEXPECTED: "report this as a bug of ftbuild, with the last lines of the log",
    Reason.NO_GPU: "run invoke nightly or invoke smoke on a machine with this GPU",
    Reason.NOT_RUN: "invoke nightly --resume continues with the remaining cells",
}
# The hint in ftbuild's messages (`FtbuildError.__str__`).
_NEXT = re.compile(r"^ +next: +(?P<what>.+)\n?", re.MULTILINE)
# In the order of the reports.
_TROUBLE = (State.FAILED, State.ERROR)


def look(state: State, reason: Reason = Reason.NONE) -> Look:
    """Return the look of a state; that of a skip depends on its reason."""
    return _SKIPS.get(reason, _STATES[state]) if state is State.SKIPPED else _STATES[state]


def meaning(cell: CellRecord) -> str:
    """Return the meaning of the cell's state, in half a sentence."""
    return _MEANINGS.get(cell.reason, "all steps passed" if cell.state is State.PASSED else "")


def message(cell: CellRecord) -> str:
    """Return the detail without its hint, which `advice` returns."""
    return _NEXT.sub("", cell.detail).rstrip()


def advice(cell: CellRecord) -> str:
    """Return the next step: the message's own hint, else advice for the reason; empty if there is none."""
    own = _NEXT.search(cell.detail)
    return own["what"] if own else _ADVICE.get(cell.reason, "")


def troubled(run: NightlyRun) -> tuple[CellRecord, ...]:
    """Return the cells that went wrong, failures before errors."""
    return tuple(cell for state in _TROUBLE for cell in run.cells if cell.state is state)


def findings(run: NightlyRun) -> tuple[CheckResult, ...]:
    """Return the failures of the audit."""
    return results.failed(run.audit)


def status(run: NightlyRun) -> str:
    """Return `success`, `failure` or `interrupted`."""
    if run.is_good:
        return "success"
    return "interrupted" if run.exit_code == Interrupted.exit_code else "failure"


def tally(run: NightlyRun) -> tuple[tuple[Look, str], ...]:
    """Return the number of cells with each look, in words: passes, failures, errors, then skips."""
    order = [*_STATES.values(), *_SKIPS.values()]
    counted = Counter(look(cell.state, cell.reason) for cell in run.cells)
    return tuple((shown, _counted(counted[shown], shown.word)) for shown in order if counted[shown])


def _counted(count: int, word: str) -> str:
    return f"{count} {word}s" if count > 1 and word in ("error", "fault", "builder") else f"{count} {word}"


def headline(run: NightlyRun) -> str:
    """Return the outcome in a few words."""
    tried = sum(cell.reason is not Reason.EXCLUDED for cell in run.cells)
    bad, faults = len(troubled(run)), len(findings(run))
    if status(run) == "success":
        return (
            f"Nothing failed, but {_counted(len(run.lost), 'builder')} lost" if run.lost else "Nothing failed"
        )
    if status(run) == "interrupted":
        missing = sum(cell.reason is Reason.NOT_RUN for cell in run.cells)
        return f"Interrupted: {missing} of {tried} cells were not run"
    if bad:
        return f"{bad} of {tried} cells went wrong"
    if faults:
        return f"{_counted(faults, 'fault')} found by the audit"
    return f"Ended with exit code {run.exit_code}"


def fate(builder: BuilderRecord) -> str:
    """Return what became of a builder: that it was lost, when and why; empty if it was not."""
    return f"lost after {units.duration(builder.lost_at or 0.0)}: {builder.lost}" if builder.lost else ""


def built_on(run: NightlyRun, builder: BuilderRecord) -> tuple[str, ...]:
    """Return the cells whose images a builder has made."""
    return tuple(cell.cell for cell in run.cells if cell.builder == builder.name and _is_built(cell))


def _is_built(cell: CellRecord) -> bool:
    return any(step.name == "build" and not step.code for step in cell.steps)

"""How an outcome is said and shown, the same in every report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ftbuild.errors import Interrupted
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State
from ftbuild.text import results
from ftbuild.text.results import CheckResult


@dataclass(frozen=True)
class Look:
    """A symbol, a word, and the tone (good, bad, error, waiting or quiet) that the page gives a colour."""

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
_MEANS: Mapping[Reason, str] = {
    Reason.PATCH: "a patch does not apply",
    Reason.BUILD: "it does not compile",
    Reason.VERIFY: "verify found faults",
    Reason.SMOKE: "the server answers wrongly or not at all",
    Reason.PUBLISH: "it could not be published",
    Reason.FETCH: "its sources could not be fetched",
    Reason.MACHINE: "the machine lacks something",
    Reason.UNEXPECTED: "something that nobody foresaw",
    Reason.EXCLUDED: "this image cannot exist",
    Reason.NO_GPU: "built and verified, but not smoke-tested",
    Reason.PUBLISHED: "the registry has it already",
    Reason.NOT_RUN: "the night ended before it was done",
}
_ADVICE: Mapping[Reason, str] = {
    Reason.PATCH: "invoke patches shows the hunk that does not fit; docs/adding-a-patch.md says how to go on",
    Reason.BUILD: "read the log from its first error; the command repeats the build from where it broke",
    Reason.VERIFY: "invoke verify repeats the checks; docs/verify.md says what each one wants",
    Reason.SMOKE: "read the server's last lines; invoke smoke repeats the test on a machine with the GPU",
    Reason.PUBLISH: "check the registry's answer and the login; the image is built, so the command is quick",
    Reason.FETCH: "check network, proxy and invoke lock --check; the next night tries again",
    Reason.MACHINE: "invoke doctor says what this machine lacks, and how to mend it",
    Reason.UNEXPECTED: "report the log's last lines: this is a fault of ftbuild",
    Reason.NO_GPU: "run the night, or invoke smoke, on a machine with this GPU",
    Reason.NOT_RUN: "the next night takes it up; give the night more time if this repeats",
}
# How a message of ours says what to do (`FtbuildError.__str__`).
_NEXT = re.compile(r"^ +next: +(?P<what>.+)\n?", re.MULTILINE)
# In the order in which a report tells of them.
_TROUBLE = (State.FAILED, State.ERROR)


def look(state: State, reason: Reason = Reason.NONE) -> Look:
    """How a state is shown; a skip by why it was one."""
    return _SKIPS.get(reason, _STATES[state]) if state is State.SKIPPED else _STATES[state]


def means(cell: CellRecord) -> str:
    """What the cell's state means, in half a sentence."""
    return _MEANS.get(cell.reason, "all steps passed" if cell.state is State.PASSED else "")


def complaint(cell: CellRecord) -> str:
    """The detail without what it says to do next, which `advice` tells."""
    return _NEXT.sub("", cell.detail).rstrip()


def advice(cell: CellRecord) -> str:
    """What to do next, by the message itself or else by the reason; empty where there is nothing to do."""
    own = _NEXT.search(cell.detail)
    return own["what"] if own else _ADVICE.get(cell.reason, "")


def troubled(night: NightlyRun) -> tuple[CellRecord, ...]:
    """The cells that went wrong, failures before errors."""
    return tuple(cell for state in _TROUBLE for cell in night.cells if cell.state is state)


def findings(night: NightlyRun) -> tuple[CheckResult, ...]:
    """Return the failures of the audit."""
    return results.failed(night.audit)


def status(night: NightlyRun) -> str:
    """`success`, `failure` or `interrupted`."""
    if night.is_good:
        return "success"
    return "interrupted" if night.exit_code == Interrupted.exit_code else "failure"


def tally(night: NightlyRun) -> tuple[tuple[Look, str], ...]:
    """How many cells look alike, in words: what passed, what went wrong, then each kind of skip."""
    order = [*_STATES.values(), *_SKIPS.values()]
    counted = Counter(look(cell.state, cell.reason) for cell in night.cells)
    return tuple((shown, _counted(counted[shown], shown.word)) for shown in order if counted[shown])


def _counted(count: int, word: str) -> str:
    return f"{count} {word}s" if count > 1 and word in ("error", "fault") else f"{count} {word}"


def headline(night: NightlyRun) -> str:
    """The outcome in a few words."""
    tried = sum(cell.reason is not Reason.EXCLUDED for cell in night.cells)
    bad, faults = len(troubled(night)), len(findings(night))
    if status(night) == "success":
        return "Nothing failed"
    if status(night) == "interrupted":
        missing = sum(cell.reason is Reason.NOT_RUN for cell in night.cells)
        return f"Interrupted: {missing} of {tried} cells were not run"
    if bad:
        return f"{bad} of {tried} cells went wrong"
    if faults:
        return f"{_counted(faults, 'fault')} found by the audit"
    return f"Ended with exit code {night.exit_code}"

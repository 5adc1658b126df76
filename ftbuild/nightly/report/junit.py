"""JUnit XML of a nightly run, for the test views of CI systems.

In pytest's dialect `xunit2`, which Jenkins' schema (xunit-plugin, junit-10.xsd) and GitLab (docs.gitlab.com,
"Unit test reports") both read: a suite per Triton release, a case per step of a cell. A cell without steps
has one case, so that it stays in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, Step, outcome
from ftbuild.nightly.report.sanitize import cleaned, clip, first_line
from ftbuild.nightly.report.wording import advice, meaning, message
from ftbuild.text import results
from ftbuild.text.results import CheckResult

# The step under which a reason is reported; all others belong to the build.
_STEP: Mapping[Reason, str] = {
    Reason.VERIFY: "verify",
    Reason.SMOKE: "smoke",
    Reason.PUBLISH: "publish",
    Reason.NO_GPU: "smoke",
    Reason.PUBLISHED: "publish",
}
_ELEMENTS: Mapping[State, str] = {State.FAILED: "failure", State.ERROR: "error", State.SKIPPED: "skipped"}
_LINE = 2000


@dataclass(frozen=True)
class _Case:
    classname: str
    name: str
    seconds: float
    state: State
    kind: str
    message: str
    text: str
    output: str


def render(run: NightlyRun) -> str:
    """Return the text of `junit.xml`. A cell's outcome stands at the step that decided it."""
    run = cleaned(run)
    root = Element("testsuites", name="ftbuild nightly", time=f"{run.seconds:.3f}")
    every: list[_Case] = []
    for release, cells in groupby(sorted(run.cells, key=_release), key=_release):
        every += _suite(root, f"Triton {release}", run, [case for cell in cells for case in _cases(cell)])
    if run.audit:
        every += _suite(root, "audit", run, [_audited(finding) for finding in run.audit])
    # junit-10.xsd has no `skipped` here.
    root.attrib.update({name: count for name, count in _counts(every).items() if name != "skipped"})
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _release(cell: CellRecord) -> str:
    return cell.triton


def _suite(root: Element, name: str, run: NightlyRun, cases: Sequence[_Case]) -> Sequence[_Case]:
    seconds = sum(case.seconds for case in cases)
    suite = SubElement(root, "testsuite", {"name": name, **_counts(cases)}, time=f"{seconds:.3f}")
    suite.set("timestamp", _timestamp(run))
    properties = SubElement(suite, "properties")
    for key in ("id", "revision", "registry", "command"):
        SubElement(properties, "property", name=key, value=str(getattr(run, key)))
    for case in cases:
        _element(suite, case)
    return cases


def _counts(cases: Iterable[_Case]) -> dict[str, str]:
    states = [case.state for case in cases]
    kinds = {"failures": State.FAILED, "errors": State.ERROR, "skipped": State.SKIPPED}
    return {"tests": str(len(states)), **{name: str(states.count(state)) for name, state in kinds.items()}}


def _timestamp(run: NightlyRun) -> str:
    """Return the start in UTC without an offset, which the stricter schemas do not allow."""
    return datetime.fromisoformat(run.started).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _element(suite: Element, case: _Case) -> None:
    element = SubElement(
        suite, "testcase", classname=case.classname, name=case.name, time=f"{case.seconds:.3f}"
    )
    if case.state is not State.PASSED:
        result = SubElement(element, _ELEMENTS[case.state], type=case.kind, message=case.message)
        result.text = case.text
    if case.output:
        SubElement(element, "system-out").text = case.output


def _cases(cell: CellRecord) -> Iterator[_Case]:
    """Yield one case per step, its repetitions together; the deciding one has the cell's state."""
    steps: dict[str, list[Step]] = {}
    for step in cell.steps:
        steps.setdefault(step.name, []).append(step)
    decided = _deciding(cell)
    for name in dict.fromkeys((*steps, decided)):
        tries = steps.get(name, [])
        state, reason = outcome(tries[-1].code) if tries else (cell.state, cell.reason)
        if name == decided:
            state, reason = cell.state, cell.reason
        detail = message(cell) if name == decided else ""
        yield _Case(
            classname=cell.triton,
            name=f"{cell.cell}: {name}",
            seconds=sum(step.seconds for step in tries),
            state=state,
            kind=reason.value,
            message=first_line(detail) or meaning(cell),
            text="\n".join(filter(None, (detail, advice(cell)))),
            output=_output(tries, cell.tail if name == decided else ()),
        )


def _deciding(cell: CellRecord) -> str:
    """Return the step at which a cell's state is reported."""
    if cell.steps and (cell.state is State.PASSED or cell.steps[-1].code):
        return cell.steps[-1].name
    return _STEP.get(cell.reason, "build")


def _output(tries: Sequence[Step], tail: Sequence[str]) -> str:
    """Return the commands with their logs, and the log's last lines."""
    commands = [line for step in tries for line in (f"$ {step.command}", f"log: {step.log}")]
    return "\n".join([*commands, *(clip(line, _LINE) for line in tail)])


def _audited(finding: CheckResult) -> _Case:
    """Return the case of a finding; a warning passes, with the warning in its output."""
    state = State.FAILED if finding.state is results.State.FAIL else State.PASSED
    output = f"{finding.state}: {finding.detail}" if finding.detail else finding.state
    return _Case(
        "audit", finding.check, 0.0, state, "audit", first_line(finding.detail), finding.detail, output
    )

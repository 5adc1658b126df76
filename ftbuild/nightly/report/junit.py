"""The night as JUnit XML, for the test views of CI systems.

In the dialect `xunit2` of pytest, which is what Jenkins' schema (xunit-plugin, junit-10.xsd) and GitLab
(docs.gitlab.com, "Unit test reports") both read: a suite for each Triton release, a case for each step of a
cell. A cell that nothing was run for has one case, so that it stays in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, Step, outcome
from ftbuild.nightly.report.sanitize import cleaned, clip, first_line
from ftbuild.nightly.report.wording import advice, complaint, means
from ftbuild.text import results
from ftbuild.text.results import CheckResult

# The step that a reason without a step of its own belongs to; all others belong to the build.
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


def render(night: NightlyRun) -> str:
    """The text of `junit.xml`. What happened to a cell stands at the step that decided it."""
    night = cleaned(night)
    root = Element("testsuites", name="ftbuild nightly", time=f"{night.seconds:.3f}")
    every: list[_Case] = []
    for release, cells in groupby(sorted(night.cells, key=_release), key=_release):
        every += _suite(root, f"Triton {release}", night, [case for cell in cells for case in _cases(cell)])
    if night.audit:
        every += _suite(root, "audit", night, [_audited(finding) for finding in night.audit])
    # junit-10.xsd has no `skipped` here.
    root.attrib.update({name: count for name, count in _counts(every).items() if name != "skipped"})
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _release(cell: CellRecord) -> str:
    return cell.triton


def _suite(root: Element, name: str, night: NightlyRun, cases: Sequence[_Case]) -> Sequence[_Case]:
    seconds = sum(case.seconds for case in cases)
    suite = SubElement(root, "testsuite", {"name": name, **_counts(cases)}, time=f"{seconds:.3f}")
    suite.set("timestamp", _timestamp(night))
    properties = SubElement(suite, "properties")
    for key in ("id", "revision", "registry", "command"):
        SubElement(properties, "property", name=key, value=str(getattr(night, key)))
    for case in cases:
        _element(suite, case)
    return cases


def _counts(cases: Iterable[_Case]) -> dict[str, str]:
    states = [case.state for case in cases]
    kinds = {"failures": State.FAILED, "errors": State.ERROR, "skipped": State.SKIPPED}
    return {"tests": str(len(states)), **{name: str(states.count(state)) for name, state in kinds.items()}}


def _timestamp(night: NightlyRun) -> str:
    """The start in UTC without an offset, which the stricter schemas do not allow."""
    return datetime.fromisoformat(night.started).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


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
    """One case for each step, the repetitions of a step together; the deciding one has the cell's state."""
    steps: dict[str, list[Step]] = {}
    for step in cell.steps:
        steps.setdefault(step.name, []).append(step)
    decided = _deciding(cell)
    for name in dict.fromkeys((*steps, decided)):
        tries = steps.get(name, [])
        state, reason = outcome(tries[-1].code) if tries else (cell.state, cell.reason)
        if name == decided:
            state, reason = cell.state, cell.reason
        detail = complaint(cell) if name == decided else ""
        yield _Case(
            classname=cell.triton,
            name=f"{cell.cell}: {name}",
            seconds=sum(step.seconds for step in tries),
            state=state,
            kind=reason.value,
            message=first_line(detail) or means(cell),
            text="\n".join(filter(None, (detail, advice(cell)))),
            output=_output(tries, cell.tail if name == decided else ()),
        )


def _deciding(cell: CellRecord) -> str:
    """The step that a cell's state is told at."""
    if cell.steps and (cell.state is State.PASSED or cell.steps[-1].code):
        return cell.steps[-1].name
    return _STEP.get(cell.reason, "build")


def _output(tries: Sequence[Step], tail: Sequence[str]) -> str:
    """The commands with their logs, and the log's last lines."""
    told = [line for step in tries for line in (f"$ {step.command}", f"log: {step.log}")]
    return "\n".join([*told, *(clip(line, _LINE) for line in tail)])


def _audited(finding: CheckResult) -> _Case:
    """A warning passes, and says so in its output."""
    state = State.FAILED if finding.state is results.State.FAIL else State.PASSED
    said = f"{finding.state}: {finding.detail}" if finding.detail else finding.state
    return _Case(
        "audit", finding.check, 0.0, state, "audit", first_line(finding.detail), finding.detail, said
    )

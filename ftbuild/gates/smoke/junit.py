"""Results of a pytest run, read from its JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from ftbuild.errors import SmokeError
from ftbuild.text.results import CheckResult, State

_NAME = re.compile(r"test_(?P<check>\w+)(?:\[(?P<variant>.*)\])?")
_BAD = ("failure", "error")
# The property of each test case that names the served variant of a family.
SERVED = "served"


def results(file: Path, image: str) -> tuple[CheckResult, ...]:
    """Return every test case as a result of `image`, a product's name."""
    return tuple(_result(case, image) for case in _cases(file))


def figures(file: Path) -> Mapping[str, Mapping[str, float]]:
    """Return the figures that passed tests recorded, by variant."""
    by_variant: dict[str, dict[str, float]] = {}
    for case in _cases(file):
        if _outcome(case)[0] is State.OK and (noted := dict(_figures(case))):
            by_variant.setdefault(_match(case)["variant"], {}).update(noted)
    return by_variant


def _figures(case: ElementTree.Element) -> Iterator[tuple[str, float]]:
    for name, value in _properties(case).items():
        if name != SERVED and value != "None":
            yield name, float(value)


def _cases(file: Path) -> Iterator[ElementTree.Element]:
    try:
        return ElementTree.parse(file).getroot().iter("testcase")
    except ElementTree.ParseError as cut:
        raise SmokeError(f"pytest's report cannot be read: {cut}", where=str(file)) from cut


def _match(case: ElementTree.Element) -> re.Match[str]:
    match = _NAME.fullmatch(case.attrib["name"])
    if match is None:
        raise SmokeError(f"pytest's report names {case.attrib['name']!r}, which is not a test of the suite")
    return match


def _result(case: ElementTree.Element, image: str) -> CheckResult:
    check = _match(case)["check"].replace("_", " ")
    state, detail, hint = _outcome(case)
    facts = {
        "variant": _match(case)["variant"] or "",
        "served": _properties(case).get(SERVED, ""),
        "seconds": float(case.attrib["time"]),
    }
    return CheckResult(check, state, detail, hint, image, facts)


def _outcome(case: ElementTree.Element) -> tuple[State, str, str]:
    """Return state, detail and hint of a test case."""
    properties = _properties(case)
    for kind in _BAD:
        if (bad := case.find(kind)) is not None:
            what = properties.get("what") or bad.attrib.get("message", "")
            return State.FAIL, what, properties.get("hint", "")
    if (skipped := case.find("skipped")) is not None:
        return State.SKIP, skipped.attrib.get("message", ""), ""
    return State.OK, "passed", ""


def _properties(case: ElementTree.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in case.iterfind("properties/property")}

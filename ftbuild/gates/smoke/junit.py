"""What a pytest run found, read from its JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from ftbuild.gates.report import Finding, State, Verdict

_NAME = re.compile(r"test_(?P<check>\w+)(?:\[(?P<variant>.*)\])?")
_BAD = ("failure", "error")


def findings(file: Path, image: str) -> tuple[Finding, ...]:
    """Every test case as a finding on `image`, a product's name."""
    return tuple(Finding(*_names(case, image), _verdict(case)) for case in _cases(file))


def figures(file: Path) -> Mapping[str, Mapping[str, float]]:
    """What the tests recorded, by variant."""
    return {
        _match(case)["variant"]: {name: float(value) for name, value in properties.items() if value != "None"}
        for case in _cases(file)
        if (properties := _properties(case)) and "what" not in properties
    }


def _cases(file: Path) -> Iterator[ElementTree.Element]:
    return ElementTree.parse(file).getroot().iter("testcase")


def _match(case: ElementTree.Element) -> re.Match[str]:
    match = _NAME.fullmatch(case.attrib["name"])
    if match is None:
        raise ValueError(f"not a test of the suite: {case.attrib['name']}")
    return match


def _names(case: ElementTree.Element, image: str) -> tuple[str, str]:
    return _match(case)["check"].replace("_", " "), image


def _verdict(case: ElementTree.Element) -> Verdict:
    facts = {"variant": _match(case)["variant"] or "", "seconds": float(case.attrib["time"])}
    properties = _properties(case)
    for kind in _BAD:
        if (bad := case.find(kind)) is not None:
            what = properties.get("what") or bad.attrib.get("message", "")
            return Verdict(State.FAIL, what, properties.get("hint", ""), facts)
    if (skipped := case.find("skipped")) is not None:
        return Verdict(State.SKIP, skipped.attrib.get("message", ""), facts=facts)
    return Verdict(State.OK, "passed", facts=facts)


def _properties(case: ElementTree.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in case.iterfind("properties/property")}

"""Traces: which tests run each line of the sources, and how long each test lasts."""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from testing import skips

# Names of no test: the import of modules, and what one test runs for others too.
IMPORTING, SHARED = "", "*"


@dataclass(frozen=True)
class Traces:
    """The tests that ran each line, by file; the wall time of each test, and the CPU time of all, in seconds.

    Lines of `SHARED` ran in a fixture of a wider scope, or to fill a cache. `skipped` has a line for each
    reason for which tests did not run.
    """

    lines: Mapping[Path, Mapping[int, frozenset[str]]]
    lasted: Mapping[str, float]
    seconds: float
    skipped: Sequence[str] = ()

    def tests(self, file: Path, first: int, last: int) -> set[str]:
        """Return the tests that ran any of the lines."""
        ran = self.lines.get(file, {})
        return {test for line in range(first, last + 1) for test in ran.get(line, ())}

    def of_file(self, file: Path) -> set[str]:
        """Return the tests that ran any line of a file."""
        return {test for tests in self.lines.get(file, {}).values() for test in tests if test in self.lasted}

    def fastest_first(self, tests: Collection[str]) -> tuple[str, ...]:
        """Return tests in the order of their time, but those of one file together, which share fixtures."""
        files: dict[str, float] = {}
        for test in tests:
            files[_file(test)] = files.get(_file(test), 0) + self.lasted.get(test, 0)
        return tuple(sorted(tests, key=lambda t: (files[_file(t)], _file(t), self.lasted.get(t, 0), t)))


def traced(sources: Collection[Path], out: Path, run: Callable[[object], int]) -> int:
    """Run tests with a plugin of pytest, write what it has seen, and return their exit code."""
    ran: dict[str, dict[int, set[str]]] = {str(file): {} for file in sources}
    caching = {key for file in sources for key in _caching(file)}

    def noting(name: str | None) -> Callable[[FrameType, str, object], Any]:
        """Return a trace function that notes the lines as of `name`, None: of the test that runs."""

        def line(frame: FrameType, event: str, _: object) -> Any:
            lines = ran[frame.f_code.co_filename].setdefault(frame.f_lineno, set())
            lines.add(names.running if name is None else name)
            return line

        return line

    own, shared, importing = noting(None), noting(SHARED), noting(IMPORTING)

    def call(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in ran:
            return None
        stack = [f.f_code for f in _stack(frame) if f.f_code.co_filename in ran]
        if any(code.co_name == "<module>" for code in stack):
            return importing(frame, event, argument)
        if any((code.co_filename, code.co_firstlineno) in caching for code in stack):
            return shared(frame, event, argument)
        return own(frame, event, argument)

    def arm() -> None:
        threading.settrace(call)
        sys.settrace(call)

    names = _Names(arm)
    code = run(names)
    sys.settrace(None)
    lines = {file: {n: sorted(tests) for n, tests in numbers.items()} for file, numbers in ran.items()}
    found = {"lines": lines, "lasted": names.lasted, "modules": sorted(sys.modules)}
    out.write_text(json.dumps({**found, "skipped": skips.summary(names.skipped)}))
    return code


class _Names:
    """A plugin of pytest that knows which test runs, and how long each has run with its fixtures.

    It traces anew from each test on: Python ends a trace in which an exception is raised, as RecursionError
    is by tests of deep nesting.
    """

    def __init__(self, arm: Callable[[], None]) -> None:
        self._arm = arm
        self._arm()
        self.running = IMPORTING
        self.lasted: dict[str, float] = {}
        self.skipped: list[pytest.TestReport | pytest.CollectReport] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running = nodeid
        self._arm()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.lasted[report.nodeid] = self.lasted.get(report.nodeid, 0) + report.duration
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report)

    def pytest_runtest_logfinish(self) -> None:
        self.running = IMPORTING

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        before = self.running
        if fixturedef.scope != "function":
            self.running = SHARED
        try:
            return (yield)
        finally:
            self.running = before


def _caching(file: Path) -> Iterator[tuple[str, int]]:
    """Yield file and first line of each function whose result is kept: its decorator speaks of a cache."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(d) for d in node.decorator_list):
            yield str(file), node.decorator_list[0].lineno


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _file(test: str) -> str:
    return test.partition("::")[0]


def read(written: Path, seconds: float) -> tuple[Traces, Sequence[str]]:
    """Return the traces of a file, and the names of all modules that were imported."""
    found = json.loads(written.read_text())
    lines = {
        Path(file): {int(line): frozenset(tests) for line, tests in ran.items()}
        for file, ran in found["lines"].items()
    }
    return Traces(lines, found["lasted"], seconds, found["skipped"]), found["modules"]


def joined(parts: Sequence[Traces]) -> Traces:
    """Return the traces of several runs, each of tests of its own, as those of one."""
    lines: dict[Path, dict[int, frozenset[str]]] = {}
    for part in parts:
        for file, ran in part.lines.items():
            known = lines.setdefault(file, {})
            known.update({line: known.get(line, frozenset()) | tests for line, tests in ran.items()})
    lasted = {test: seconds for part in parts for test, seconds in part.lasted.items()}
    skipped = [line for part in parts for line in part.skipped]
    return Traces(lines, lasted, sum(part.seconds for part in parts), skipped)

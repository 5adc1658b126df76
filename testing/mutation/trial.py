"""Trials: the tests of an area in a process of its own, with a mutant in the place of a module.

The mutant is in memory only, and no file changes. A process is forked for each trial from one that has
imported the libraries. Programs that a test starts see the unchanged sources.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

OPTIONS = (
    *("-x", "-q", "--tb=no", "--no-header", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider"),
    # The libraries are imported before pytest can rewrite the plugins among them.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
# A trial that takes that many times the CPU time of the tests without a mutant is a loop. The clock would
# take a busy machine for one; it ends only what waits for ever.
PATIENCE, LEAST_SECONDS = 8, 20
WAITING_SECONDS = 1200
NO_TESTS = 5


@dataclass(frozen=True)
class Traces:
    """The tests that ran each line, by file, and the CPU time of all. `""` is the import of modules."""

    lines: Mapping[Path, Mapping[int, frozenset[str]]]
    seconds: float

    def tests(self, file: Path, first: int, last: int) -> set[str]:
        """Return the tests that ran any of the lines."""
        ran = self.lines.get(file, {})
        return {test for line in range(first, last + 1) for test in ran.get(line, ())}


class TestsFail(Exception):
    """The tests fail without any mutant, or there are none."""


def trace(root: Path, sources: Collection[Path], tests: Sequence[str]) -> Traces:
    """Run the tests of an area without a mutant; raise TestsFail unless they pass."""
    with TemporaryDirectory() as folder:
        written, start = Path(folder, "traces.json"), _cpu_seconds()
        code = _forked(lambda: _traced(root, sources, tests, written), WAITING_SECONDS)
        seconds = _cpu_seconds() - start
        if code != 0:
            raise TestsFail(f"pytest ended with {code}")
        found = json.loads(written.read_text())
    for name in found["modules"]:
        if not _is_ours(root, name) and not name.startswith(("_", "pytest")):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    # Else what the imports break would count as noticed.
    if code := _forked(lambda: _tested(root, {}, tests), WAITING_SECONDS):
        raise TestsFail(f"pytest ended with {code}, with the libraries imported before")
    lines = {
        Path(file): {int(line): frozenset(tests) for line, tests in ran.items()}
        for file, ran in found["lines"].items()
    }
    return Traces(lines, seconds)


def survives(
    root: Path, file: Path, tree: ast.Module, tests: Sequence[str], seconds: float, only: Collection[str] = ()
) -> bool:
    """Return whether the tests pass although the tree stands in the place of a file's.

    `only` are the ids of the tests to run, of those in the files `tests`; none: all.
    """
    code = compile(tree, str(file), "exec", dont_inherit=True)
    plugins = [_Only(only)] if only else []
    limit = max(LEAST_SECONDS, PATIENCE * seconds)
    return _forked(lambda: _tested(root, {file: code}, tests, *plugins), limit) in (0, NO_TESTS)


@dataclass(frozen=True)
class _Only:
    """A plugin of pytest that leaves out all other tests. An id as an argument would fail once it is gone."""

    ids: Collection[str]

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.ids]


def _cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _forked(body: Callable[[], int], seconds: float) -> int:
    """Return the exit code of `body` in a child process, which is killed after so much CPU time."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
            os._exit(body())
        os._exit(1)
    deadline = time.monotonic() + WAITING_SECONDS
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
    except BaseException:  # Ctrl-C: its session is its own
        _kill(child)
        raise
    _kill(child)
    return -signal.SIGKILL


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _tested(root: Path, codes: Mapping[Path, CodeType], tests: Sequence[str], *plugins: object) -> int:
    """Run the tests with other code in the place of some files; for a child process alone."""
    import pytest

    os.chdir(root)
    _silence()
    for name in [name for name in sys.modules if _is_ours(root, name)]:
        del sys.modules[name]
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        return codes.get(Path(self.path)) or original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    return int(pytest.main([*OPTIONS, *tests], plugins=list(plugins)))


def _traced(root: Path, sources: Collection[Path], tests: Sequence[str], out: Path) -> int:
    traced = {str(file) for file in sources}
    ran: dict[str, dict[int, set[str]]] = {file: {} for file in traced}
    running = [""]

    class Names:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            running[0] = nodeid

        def pytest_runtest_logfinish(self) -> None:
            running[0] = ""

    def line(frame: FrameType, event: str, _: object) -> Any:
        ran[frame.f_code.co_filename].setdefault(frame.f_lineno, set()).add(running[0])
        return line

    def call(frame: FrameType, event: str, argument: object) -> Any:
        return line(frame, event, argument) if frame.f_code.co_filename in traced else None

    threading.settrace(call)
    sys.settrace(call)
    code = _tested(root, {}, tests, Names())
    sys.settrace(None)
    lines = {file: {n: sorted(names) for n, names in numbers.items()} for file, numbers in ran.items()}
    out.write_text(json.dumps({"lines": lines, "modules": sorted(sys.modules)}))
    return code


def _is_ours(root: Path, module: str) -> bool:
    """Return whether a module is one of the project, and not of a library."""
    top = module.partition(".")[0]
    return (root / top).is_dir() or (root / f"{top}.py").is_file()


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.stdout = sys.stderr = open(nowhere, "w")  # noqa: SIM115, PTH123

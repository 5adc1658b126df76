"""Trials: the tests of an area in a process of its own, with a mutant in the place of a module.

The mutant is in memory only, and no file changes. A process is forked for each trial from one that has
imported the libraries. Programs that a test starts see the unchanged sources.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any, TypeVar

import pytest

from testing.mutation import functions, tracing, workers
from testing.mutation.tracing import Traces

T = TypeVar("T")

OPTIONS = (
    *("-x", "-q", "--tb=no", "--no-header", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider"),
    # The libraries are imported before pytest can rewrite the plugins among them.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
# Of the runs without a mutant.
SAYING = ("--tb=short",)
# A trial that takes that many times the time of its tests without a mutant is a loop: CPU time for all of
# them, as the clock would take a busy machine for one, and the clock for each, as some wait for ever.
PATIENCE, LEAST_SECONDS, LEAST_WAITING_SECONDS = 8, 20, 40
WAITING_SECONDS = 1200
# Nor longer than so many times the CPU time that it may take: else each that hangs holds a process for long.
WAITING = 6
# So many of the tests that have noticed a mutant run first.
AGAIN = 3
NO_TESTS = 5
_PASSED = (0, NO_TESTS)
# The process that has collected the tests may end in so many trials one after the other.
MAX_ENDED = 5
# The exit code of a trial that could not begin: what a mutant changes is no function that can be exchanged.
NOT_EXCHANGED = 99
# Lines that are repeated of what pytest says when it ends although no test has failed.
SAID_LINES = 12


class TestsFail(Exception):
    """The tests fail without any mutant, or there are none."""


def trace(root: Path, sources: Collection[Path], tests: Sequence[str], jobs: int = 1) -> Traces:
    """Run the tests of an area without a mutant; raise TestsFail unless they pass.

    With several `jobs`, processes, each file of tests runs alone.
    """
    parts = [[test] for test in tests] if jobs > 1 else [tests]

    def each(work: Callable[[Sequence[str]], T]) -> list[T]:
        working = contextlib.nullcontext(lambda number: work(parts[number]))
        done = dict(workers.outcomes(lambda: working, len(parts), jobs, together=1))
        return [done[number] for number in range(len(parts))]

    found = each(lambda part: _traced(root, sources, part))
    traces = tracing.joined([part for part, _ in found])
    if not traces.lasted:
        raise TestsFail("there is no test")
    for name in sorted({name for _, modules in found for name in modules}):
        # Hypothesis warns of what is imported before its plugin.
        if not _is_ours(root, name) and not name.startswith(("_", "pytest", "hypothesis")):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    # Else what the imports break would count as noticed.
    each(lambda part: _untraced(root, part))
    return traces


def _traced(root: Path, sources: Collection[Path], tests: Sequence[str]) -> tuple[Traces, Sequence[str]]:
    """Return the traces of tests and the modules that they import; raise TestsFail if they fail."""
    with TemporaryDirectory() as folder, _pipe() as (reading, writing):
        written, said, start = Path(folder, "traces.json"), Path(folder, "said"), _cpu_seconds()

        def body() -> int:
            plugin = _Failure(writing)
            return tracing.traced(
                sources, written, lambda names: _tested(root, {}, [*SAYING, *tests], names, plugin, said=said)
            )

        code = _forked(body, WAITING_SECONDS)
        if code not in _PASSED:
            raise TestsFail(_why(code, reading, said))
        return tracing.read(written, _cpu_seconds() - start)


def _untraced(root: Path, tests: Sequence[str]) -> None:
    """Run tests as they run in a trial; raise TestsFail if they fail."""
    with TemporaryDirectory() as folder, _pipe() as (reading, writing):
        said = Path(folder, "said")
        code = _forked(
            lambda: _tested(root, {}, [*SAYING, *tests], _Failure(writing), said=said), WAITING_SECONDS
        )
        if code not in _PASSED:
            raise TestsFail(f"with the libraries imported before, {_why(code, reading, said)}")


class Trials:
    """Trials of an area's mutants. The tests that have noticed the last ones run first, as they may again."""

    def __init__(
        self, root: Path, tests: Sequence[str], traces: Traces, server: _Collected, pipe: tuple[int, int]
    ) -> None:
        self._root, self._tests, self._traces, self._server = root, tests, traces, server
        self._failed, self._failing = pipe
        self._noticing: list[str] = []

    def of_function(self, file: Path, tree: ast.Module, only: Collection[str]) -> bool | None:
        """Return whether the tests `only` pass with the functions of the tree in the place of a file's.

        They have been collected already. None: the tree differs in more than functions that were imported.
        """
        codes = functions.changed(file, tree)
        if not codes:
            return None
        limit = LEAST_SECONDS + PATIENCE * sum(self._traces.lasted[test] for test in only)
        code = self._server.ask((codes, self._order(only), limit))
        self._note()
        return None if code == NOT_EXCHANGED else code in _PASSED

    def of_module(self, file: Path, tree: ast.Module) -> bool:
        """Return whether all tests pass although the tree stands in the place of a file's.

        Those that ran any of its lines come first, as they are the likeliest to notice.
        """
        code = compile(tree, str(file), "exec", dont_inherit=True)
        near = self._traces.of_file(file)
        order = [*self._order(near), *self._order([t for t in self._traces.lasted if t not in near])]
        plugins = _Sorted(order), _Failure(self._failing)
        arguments = [*_timeout(self._traces), *self._tests]
        limit = max(LEAST_SECONDS, PATIENCE * self._traces.seconds)
        ended = _forked(lambda: _tested(self._root, {file: code}, arguments, *plugins), limit)
        self._note()
        return ended in _PASSED

    def _order(self, tests: Collection[str]) -> list[str]:
        first = [test for test in self._noticing if test in tests][:AGAIN]
        return [*first, *(test for test in self._traces.fastest_first(tests) if test not in first)]

    def _note(self) -> None:
        if test := _failed(self._failed):
            self._noticing = [test, *(other for other in self._noticing if other != test)]


@contextlib.contextmanager
def trials(root: Path, sources: Collection[Path], tests: Sequence[str], traces: Traces) -> Iterator[Trials]:
    """Collect the tests of an area once, for all trials of functions."""
    with _pipe() as pipe:

        def body(connection: Connection) -> int:
            plugins = _Server(connection, sources), _Failure(pipe[1])
            return _tested(root, {}, [*_timeout(traces), *tests], *plugins)

        server = _Collected(body)
        try:
            yield Trials(root, tests, traces, server, pipe)
        finally:
            server.end()


class _Collected:
    """The process that has collected the tests, and forks for each trial; it is started anew when it ends."""

    def __init__(self, body: Callable[[Connection], int]) -> None:
        self._body = body
        # Trials one after the other in which it ended.
        self._ended = 0
        self._start()

    def ask(self, trial: object) -> int:
        """Return the exit code of a trial; that of a signal where the process ended in it, twice.

        A fault may do that, by a signal to the process above, and must not end the campaign. TestsFail when
        it ends in every trial, which is no fault's doing.
        """
        for _ in range(2):
            try:
                self._connection.send(trial)
                code = int(self._connection.recv())
            except (EOFError, OSError):  # a broken pipe, too
                self.end()
                self._start()
            else:
                self._ended = 0
                return code
        self._ended += 1
        if self._ended == MAX_ENDED:
            raise TestsFail(f"their process has ended in {MAX_ENDED} trials one after the other")
        return -signal.SIGKILL

    def end(self) -> None:
        """Let it end, which it does when nobody can ask it any more."""
        self._connection.close()
        os.waitpid(self._child, 0)

    def _start(self) -> None:
        self._connection, there = Pipe()
        self._child = _fork()
        if self._child == 0:
            with contextlib.suppress(BaseException):
                self._connection.close()
                os.setsid()
                os._exit(self._body(there))
            os._exit(1)
        there.close()


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Make a pipe for the names of failed tests, of which reading waits for nothing."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _failed(pipe: int) -> str:
    """Return the test that a pipe names; empty without one."""
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, select.PIPE_BUF).decode()
    return ""


# Plugins are compared by identity: pytest puts them into sets, if conftest.py files concern some tests only.
@dataclass(frozen=True, eq=False)
class _Server:
    """A plugin of pytest that forks, for each trial that it is asked for, before the first test."""

    connection: Connection
    sources: Collection[Path]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        known = functions.living(self.sources)
        while True:
            try:
                codes, ids, seconds = self.connection.recv()
            except EOFError:
                os._exit(0)
            child = _fork()
            if child == 0:
                self.connection.close()
                _limit(seconds)
                if not functions.exchange(known, codes):
                    os._exit(NOT_EXCHANGED)
                by_id = {item.nodeid: item for item in session.items}
                session.items[:] = [by_id[test] for test in ids if test in by_id]
                return  # pytest goes on with the tests
            self.connection.send(_ended(child, seconds))


@dataclass(eq=False)
class _Failure:
    """A plugin of pytest that writes the name of the failed test into a pipe: with `-x` there is one."""

    pipe: int
    _is_written: bool = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._is_written:  # a test may fail again in its teardown
            os.write(self.pipe, report.nodeid.encode()[: select.PIPE_BUF])
            self._is_written = True


@dataclass(frozen=True, eq=False)
class _Sorted:
    """A plugin of pytest that runs the tests in this order, and then those that it does not know."""

    ids: Sequence[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        ranks = {test: rank for rank, test in enumerate(self.ids)}
        items.sort(key=lambda item: ranks.get(item.nodeid, len(ranks)))


def _why(code: int, pipe: int, said: Path) -> str:
    """Return the name of the test that failed, or else how pytest ended and the end of what it has said."""
    if test := _failed(pipe):
        return test
    lines = said.read_text(errors="replace").splitlines() if said.exists() else []
    return "\n".join((f"pytest ended with {code}", *lines[-SAID_LINES:]))


def _timeout(traces: Traces) -> list[str]:
    """Return the option that ends a test which waits for ever (pytest-timeout)."""
    longest = max(traces.lasted.values(), default=0.0)
    return [f"--timeout={max(LEAST_WAITING_SECONDS, PATIENCE * longest):.0f}"]


def _cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _fork() -> int:
    """Fork. What the parent has made is no garbage for the child, and is a lot: pytest collects often."""
    child = os.fork()
    if child == 0:
        gc.freeze()
    return child


def _forked(body: Callable[[], int], seconds: float) -> int:
    """Return the exit code of `body` in a child process, which is killed after so much CPU time."""
    child = _fork()
    if child == 0:
        try:
            _limit(seconds)
            os._exit(body())
        except BaseException:  # its output goes where `body` lets it
            with contextlib.suppress(BaseException):
                traceback.print_exc()
            os._exit(1)
    return _ended(child, seconds)


def _limit(seconds: float) -> None:
    """Put this process into a session of its own, and end it after so much CPU time."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))


def _ended(child: int, seconds: float) -> int:
    """Wait for a child process that may take so much CPU time, though not for ever; return its exit code."""
    deadline = time.monotonic() + min(WAITING_SECONDS, WAITING * seconds)
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
    except BaseException:  # Ctrl-C: its session is its own
        _kill(child)
        raise
    _kill(child)
    return -signal.SIGKILL


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _tested(
    root: Path,
    codes: Mapping[Path, CodeType],
    arguments: Sequence[str],
    *plugins: object,
    said: Path = Path(os.devnull),
) -> int:
    """Run the tests with other code in the place of some files; for a child process alone.

    `said` gets what they and pytest print.
    """
    os.chdir(root)
    _divert(said)
    for name in [name for name in sys.modules if _is_ours(root, name)]:
        del sys.modules[name]
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        return codes.get(Path(self.path)) or original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    return int(pytest.main([*OPTIONS, *arguments], plugins=list(plugins)))


def _is_ours(root: Path, module: str) -> bool:
    """Return whether a module is one of the project, and not of a library."""
    top = module.partition(".")[0]
    return (root / top).is_dir() or (root / f"{top}.py").is_file()


def _divert(said: Path) -> None:
    """Let all output go to a file, that of Python and of pytest's own end too."""
    there = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(there, 1)
    os.dup2(there, 2)
    sys.stdout = sys.stderr = open(there, "w", buffering=1)  # noqa: SIM115, PTH123

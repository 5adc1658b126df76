"""Fixtures: one server per variant of a family, started when its first test needs it.

Under pytest-xdist several processes run the tests side by side. All tests of a server go to one process, that
has one server at a time; those that may have no other on their GPU come last.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ftbuild.client.connection import Client, Unanswered
from ftbuild.errors import FtbuildError, SmokeError
from ftbuild.gates.smoke import job, junit, places, progress
from ftbuild.gates.smoke.embedder import Embedder, embedding
from ftbuild.gates.smoke.job import DTYPES, Job, Variant
from ftbuild.gates.smoke.progress import Progress
from ftbuild.gates.smoke.served import PROTOCOLS, Served, serving
from ftbuild.text.reporter import Pace

T = TypeVar("T")
JOB = pytest.StashKey[Job]()
# What ends the server of this process, and gives its place back.
STAGE = pytest.StashKey[ExitStack]()
PROGRESS = pytest.StashKey[Progress]()
# The process of pytest-xdist that runs the tests, `gw3`.
WORKER = "PYTEST_XDIST_WORKER"
# What the log has the time of.
SLOW_SECONDS = 1.0
# Tests that compare the GPU's memory in use before and after. Where the driver reports the memory of all
# processes together only, nothing else may be on the GPU meanwhile.
READ_MEMORY = (
    "test_a_model_that_is_unloaded_and_loaded_leaves_no_memory",
    "test_malformed_requests_leave_the_server_to_the_others",
    "test_many_clients_get_the_answers_that_they_get_alone",
    "test_requests_that_come_and_end_at_any_time_get_the_answers_that_they_get_alone",
)
# Tests that compare how busy the GPUs are, which is told of all processes together only.
READ_USE = ("test_instances_use_their_gpus_evenly",)
# Fixture of a server -> whether its families return embeddings.
SERVERS = {"served": False, "embedder": True}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--job", type=Path, required=True, help="file that `invoke smoke` wrote")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variants(dtypes, extra, ...): ways of serving to test (repeatable)")
    config.addinivalue_line("markers", "over_gpus: also every way of a model over several GPUs, in fp32")
    place = int(re.sub(r"\D", "", os.environ.get(WORKER, "")) or 0)
    config.stash[JOB] = replace(job.read(config.getoption("--job")), place=place)
    config.stash[STAGE] = ExitStack()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = next((each for each in SERVERS if each in metafunc.fixturenames), None)
    if name is None:
        return
    marked = [marker.kwargs for marker in metafunc.definition.iter_markers("variants")]
    if metafunc.definition.get_closest_marker("over_gpus"):
        marked += [{"dtypes": ("fp32",), **way} for way in job.OVER_TWO]
        marked += [{"dtypes": ("fp32",), "extra": (job.FOUR,), **way} for way in job.OVER_FOUR]
    marked = marked or [{}]
    task = metafunc.config.stash[JOB]
    alone = _reads_alone(task, metafunc.definition.nodeid)
    variants = [
        replace(each, alone=alone)
        for options in reversed(marked)
        for each in _variants(task, vectors=SERVERS[name], **options)
    ]
    metafunc.parametrize(name, variants, indirect=True, ids=str, scope="session")


def _reads_alone(task: Job, test: str) -> bool:
    """Return whether a test compares what others on its GPUs would change; by its id in pytest."""
    function = test.rpartition("::")[2].partition("[")[0]
    known = READ_USE if task.tells_processes else (*READ_USE, *READ_MEMORY)
    return task.style is not None and function in known


def _variants(
    task: Job, *, vectors: bool, extra: Collection[str] | None = None, **options: Any
) -> list[Variant]:
    """Return the variants that a marker asks for: of the families, or of models whose name `extra` has."""
    names = task.names(vectors=vectors, extra=extra is not None)
    selected = [name for name in names if extra is None or any(fnmatchcase(name, each) for each in extra)]
    return task.variants(selected, **{"dtypes": DTYPES, **options})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests of no family, as pytest would report each as skipped; group the others by server.

    The servers with most to do come first, since the last one to end decides how long all take. Those that
    are alone follow, on few GPUs before on many: one that waits for all GPUs would keep pairs of them idle.
    """
    groups: dict[Variant, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(variant := _variant(item), Variant):
            groups[variant].append(item)

    def work(item: pytest.Item) -> float:
        return progress.seconds(item.nodeid)

    def last(variant: Variant) -> tuple[int, float]:
        return variant.is_alone * variant.gpus, -sum(map(work, groups[variant]))

    items[:] = [
        item
        for variant in sorted(groups, key=last)
        for item in sorted(groups[variant], key=work, reverse=True)
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests of a server to one process, in the order in which they were collected.

    Not by pytest-xdist's groups: 3.8 writes them into names that pytest 9.2 does not read.
    """
    from xdist.scheduler import LoadScopeScheduling

    task = config.stash[JOB]

    class ByServer(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return f"{task.served(nodeid)} {_reads_alone(task, nodeid)}"

    return ByServer(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to count, where one process runs all tests."""
    if not hasattr(session.config, "workerinput"):
        _count(session.config, [item.nodeid for item in session.items])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Begin to count, where several processes do, all of which find the same tests."""
    if PROGRESS not in node.config.stash:
        _count(node.config, ids)


def _count(config: pytest.Config, ids: Sequence[str]) -> None:
    task = config.stash[JOB]
    config.stash[PROGRESS] = Progress(ids, list(filter(task.has_too_few_gpus, ids)), partial(_share, task))


def _share(task: Job, test: str) -> float:
    """Return about which share of the GPUs a test keeps from others, by its id in pytest."""
    gpus = max(1, len(task.gpus))
    if task.is_split(test) or _reads_alone(task, test):
        return task.needed_gpus(test) / gpus
    return 1 / (gpus * places.BUSY)


class Teller:
    """Reports progress now and then: a plugin of pytest's main process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.start = config, time.monotonic()
        self.pace = Pace()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test begins, in whichever process."""
        if known := self.config.stash.get(PROGRESS, None):
            known.begin(nodeid, time.monotonic() - self.start)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that has ended, and say how long it took, with the wait for a place and a server.

        pytest's own times (9.2, `console_output_style`) are wrong where several processes run tests.
        """
        self.seconds[report.nodeid] += report.duration
        known = self.config.stash.get(PROGRESS, None)
        if known is None or report.when != "teardown":
            return
        known.finish(report.nodeid)
        if (seconds := self.seconds.pop(report.nodeid)) >= SLOW_SECONDS:
            self._write(f"{seconds:.1f} s: {report.nodeid}")
        if self.pace.is_due():
            self._write(known.line(time.monotonic() - self.start))

    def _write(self, line: str) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal:
            terminal.ensure_newline()
            terminal.write_line(line)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Teller(session.config))


def pytest_runtest_setup(item: pytest.Function) -> None:
    """Note which variant a test is about, for the record; also of one that is skipped or fails at once."""
    item.user_properties.append((junit.SERVED, str(_variant(item))))


def _variant(item: pytest.Item) -> object:
    params = item.callspec.params if isinstance(item, pytest.Function) else {}
    return next((params[name] for name in SERVERS if name in params), None)


def _testable(request: pytest.FixtureRequest) -> tuple[Job, Variant]:
    """Return the job and the variant that a server is for; the test is skipped where it cannot run."""
    task, variant = request.config.stash[JOB], request.param
    if reason := task.lacks(variant):
        pytest.skip(reason)
    return task, variant


@pytest.fixture(scope="session")
def task(pytestconfig: pytest.Config) -> Job:
    return pytestconfig.stash[JOB]


@contextmanager
def _staged(
    request: pytest.FixtureRequest, start: Callable[[Job, Variant], AbstractContextManager[T]]
) -> Iterator[T]:
    """Start the server of a variant once there is a place for it; the one before, of either fixture, ends.

    One that has its GPUs alone is started before they are free, unless that would change the memory that
    tests of the one before compare.
    """
    stage = request.config.stash[STAGE]
    stage.close()
    try:
        task, variant = _testable(request)
        locks, devices = request.config.getoption("--job").parent / "smoke-places", task.devices(variant)
        place = places.held(locks, devices, alone=variant.is_alone)
        if variant.is_alone and task.tells_processes:
            with places.next_in_line(locks, devices):
                made = stage.enter_context(start(task, variant))
                stage.enter_context(place)
        else:
            stage.enter_context(place)
            made = stage.enter_context(start(task, variant))
        yield made
    finally:
        stage.close()


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with _staged(request, serving) as made:
        yield made


@pytest.fixture(scope="session")
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    with _staged(request, embedding) as made:
        yield made


def _server(request: pytest.FixtureRequest) -> Served | Embedder:
    name = next(each for each in SERVERS if each in request.fixturenames)
    server: Served | Embedder = request.getfixturevalue(name)
    return server


@pytest.fixture(autouse=True)
def answering(request: pytest.FixtureRequest) -> None:
    """Fail at once after an unanswered request, as each further one would take as long."""
    if _server(request).silent:
        raise SmokeError(
            "skipped, as an earlier request got no answer", hint="see the first failure of this variant"
        )


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest) -> Client:
    return _server(request).clients[request.param]


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note a failure's message and hint, for the record."""
    if call.excinfo is not None and isinstance(error := call.excinfo.value, FtbuildError):
        item.user_properties += [("what", error.what), ("hint", error.hint or "")]
        servers = [item.funcargs.get(name) for name in SERVERS]  # type: ignore[attr-defined]
        for server in servers if isinstance(error, Unanswered) else ():
            if isinstance(server, Served | Embedder):
                server.silent = True

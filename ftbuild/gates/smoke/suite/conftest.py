"""Fixtures: one server per variant of a family, started when its first test needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from ftbuild.client.connection import Client, Unanswered
from ftbuild.errors import FtbuildError, SmokeError
from ftbuild.gates.smoke import job, junit
from ftbuild.gates.smoke.embedder import Embedder, embedding
from ftbuild.gates.smoke.job import DTYPES, Job, Variant
from ftbuild.gates.smoke.served import PROTOCOLS, Served, serving

JOB = pytest.StashKey[Job]()
# Fixture of a server -> whether its families answer with vectors.
SERVERS = {"served": False, "embedder": True}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--job", type=Path, required=True, help="file that `invoke smoke` wrote")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variants(dtypes, extra, ...): ways of serving to test (repeatable)")
    config.stash[JOB] = job.read(config.getoption("--job"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = next((each for each in SERVERS if each in metafunc.fixturenames), None)
    if name is None:
        return
    marked = [marker.kwargs for marker in metafunc.definition.iter_markers("variants")] or [{}]
    task = metafunc.config.stash[JOB]
    variants = [
        each for options in reversed(marked) for each in _variants(task, vectors=SERVERS[name], **options)
    ]
    metafunc.parametrize(name, variants, indirect=True, ids=str, scope="session")


def _variants(
    task: Job, *, vectors: bool, extra: Collection[str] | None = None, **options: Any
) -> list[Variant]:
    """Return the variants that a marker asks for: of the families, or of models whose name `extra` has."""
    names = task.names(vectors=vectors, extra=extra is not None)
    wanted = [name for name in names if extra is None or any(fnmatchcase(name, each) for each in extra)]
    return task.variants(wanted, **{"dtypes": DTYPES, **options})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests of no family: pytest would report each as skipped."""
    items[:] = [item for item in items if isinstance(_variant(item), Variant)]


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


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(*_testable(request)) as made:
        yield made


@pytest.fixture(scope="session")
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    with embedding(*_testable(request)) as made:
        yield made


def _server(request: pytest.FixtureRequest) -> Served | Embedder:
    name = next(each for each in SERVERS if each in request.fixturenames)
    found: Served | Embedder = request.getfixturevalue(name)
    return found


@pytest.fixture(autouse=True)
def answering(request: pytest.FixtureRequest) -> None:
    """Fail at once after an unanswered request, as each further one would take as long."""
    if _server(request).silent:
        raise SmokeError(
            "not asked, as an earlier request got no answer", hint="see the first failure of this variant"
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

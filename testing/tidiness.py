"""What a test run leaves behind: compared before and after, and said at its end. A plugin of pytest.

Programs get a folder of pytest's own for temporary files, which goes with it. Named are temporary files that
are elsewhere, containers, volumes, networks and images of the engine, what is new in the user's home, and
programs that still run.

A program that tests have started has a mark of the run in its environment, so one that is left fails the run.
The rest fails it where nobody else is at work on the machine: in CI, which sets the variable `CI`. What is at
home is only named: Docker's and other tools keep settings there after their first use.

What the next run needs as well is no litter: bases and the operating system below them, and downloads.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host.paths import cache_folder
from testing.waiting import until

# Of the machine; tests that need a folder for other users as well take it.
SYSTEM = Path(tempfile.gettempdir())
KEPT = ("ftbuild-os:", "ftbuild-base-")
_HOME = "at home "
_HOMES = ("", ".cache", ".config", ".local/share", ".docker")
# pytest's own, and those of services of the machine.
_OTHERS = ("pytest-of-", "snap-private-tmp", "systemd-private-")
_MARK = "FTBUILD_TEST_RUN"
# It serves one process, and ends with it.
_SERVERS = (b"testing.forked",)
_END_SECONDS = 10.0
_BEFORE, _LEFT = pytest.StashKey[frozenset[str]](), pytest.StashKey[list[str]]()


def snapshot() -> frozenset[str]:
    """Return the names of everything that a test run might leave behind."""
    return frozenset((*_in_the_engine(), *_at_home(), *_temporary()))


def _in_the_engine() -> Iterator[str]:
    try:
        client = daemon.connect()
    except HostError:
        return
    yield from (f"container {one.name}" for one in client.containers.list(all=True, ignore_removed=True))
    yield from (f"volume {one.name}" for one in client.volumes.list())
    yield from (f"network {one.name}" for one in client.networks.list())
    # The list alone: an image of others may be gone before it is asked about.
    for image in client.api.images():
        for name in image["RepoTags"] or [f"without a name: {image['Id'][:19]}"]:
            if not name.startswith(KEPT):
                yield f"image {name}"


def _at_home() -> Iterator[str]:
    for folder in (Path.home() / name for name in _HOMES):
        if folder.is_dir():
            yield from (f"{_HOME}{one}" for one in folder.iterdir() if one != cache_folder())


def _temporary() -> Iterator[str]:
    yield from (f"temporary {one}" for one in SYSTEM.iterdir() if not one.name.startswith(_OTHERS))


def processes(run: str) -> list[str]:
    """Return the programs with the mark of a test run, by number and command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{_MARK}={run}\0".encode() in (place / "environ").read_bytes()
            words = (place / "cmdline").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if marked and place.name != str(os.getpid()) and not any(server in words for server in _SERVERS):
            line = words.replace(b"\0", b" ").decode(errors="replace")
            found.append(f"process {place.name}: {line[:100]}")
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Mark what tests start; before the processes of the run are."""
    if not hasattr(config, "workerinput"):
        os.environ[_MARK] = uuid.uuid4().hex


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look before; once, not in every process of the run."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = snapshot()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Look again once all processes of the run have ended, and fail it for what it leaves."""
    yield
    before = session.config.stash.get(_BEFORE, None)
    if before is None:
        return
    run = os.environ[_MARK]
    until(lambda: not processes(run), _END_SECONDS, pause=0.2)
    running, things = sorted(processes(run)), sorted(snapshot() - before)
    session.config.stash[_LEFT] = [*running, *things]
    ours = [thing for thing in things if not thing.startswith(_HOME)] if os.environ.get("CI") else []
    if session.exitstatus == pytest.ExitCode.OK and (running or ours):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what is there that was not: of these tests, unless something else was at work meanwhile."""
    if left := config.stash.get(_LEFT, []):
        terminalreporter.section(f"{len(left)} things are left behind")
        for line in left:
            terminalreporter.write_line(f"       {line}")


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in pytest's own for whatever tests and their programs put into temporary files."""
    folder = tmp_path_factory.getbasetemp() / "tmp"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield folder

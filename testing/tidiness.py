"""What a test run leaves behind: compared before and after, and said at its end. A plugin of pytest.

Programs get a folder of pytest's own for temporary files, which goes with it. Named are temporary files that
are elsewhere, containers, volumes, networks and images of the engine, and what is new in the user's home.

What the next run needs as well is no litter: bases and the operating system below them, and downloads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host.paths import cache_folder

# Of the machine; tests that need a folder for other users as well take it.
SYSTEM = Path(tempfile.gettempdir())
KEPT = ("ftbuild-os:", "ftbuild-base-")
_HOMES = ("", ".cache", ".config", ".local/share", ".docker")
_BEFORE = pytest.StashKey[frozenset[str]]()


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
            yield from (f"at home {one}" for one in folder.iterdir() if one != cache_folder())


def _temporary() -> Iterator[str]:
    yield from (f"temporary {one}" for one in SYSTEM.iterdir() if not one.name.startswith("pytest-of-"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look before; once, not in every process of the run."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = snapshot()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what is there that was not: of these tests, unless something else was at work meanwhile."""
    before = config.stash.get(_BEFORE, None)
    if left := sorted(snapshot() - before) if before is not None else []:
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

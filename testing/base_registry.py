"""One registry for all processes of a test run, which has the layers of the sample's small base.

An engine packs and pushes these for longer than a test takes otherwise, once for each registry that it
pushes to. Tests publish below names of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.host import shell
from testing import once, registries
from testing.registries import LOG, Registry
from testing.waiting import until

if TYPE_CHECKING:
    import docker


# Prints the number of a program that goes on after this process, and ends it once the test run is no more: an
# interrupted run gives its processes no time to remove what they share.
GUARDED = """
(
    "$@" 3>&- &
    server=$!
    echo $server >&3
    exec 3>&-
    (while kill -0 $TEST_RUN && sleep 1; do :; done; kill $server) &
    guard=$!
    wait $server
    kill $guard
) 3>&1 >"$0" 2>&1 </dev/null &
"""


def run_number() -> int:
    """Return the number of the process of the whole test run: of pytest-xdist's, which started this one."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@contextmanager
def running(shared: Path, client: docker.DockerClient, base: str, credentials: Path) -> Iterator[Registry]:
    """Have the registry run during the block; the first process starts it, the last one stops it.

    `base` is the image whose layers it has; `credentials` is a folder for the calling process alone.
    """
    folder = shared / "base-registry"

    def make() -> str:
        number, host = _start(folder)
        try:
            _push(client, base, host)
        except BaseException:
            _stop(number, host, folder)
            raise
        return json.dumps([number, host])

    def stop(made: str) -> None:
        number, host = json.loads(made)
        _stop(number, host, folder)

    with once.made(shared, "base-registry", make, stop) as made:
        registry = Registry(json.loads(made)[1], credentials)
        registry.logout()
        yield registry


def _start(folder: Path) -> tuple[int, str]:
    """Start it as a program that outlives this process; return its number and its address."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    argv, host = registries.configured(folder, registries.on_disk_below(folder))
    environment = {"TEST_RUN": str(run_number())}
    number = int(shell.run(["sh", "-c", GUARDED, str(folder / LOG), *argv], env=environment).stdout)
    if not until(lambda: registries.answers(host)):
        os.kill(number, signal.SIGKILL)
        raise AssertionError((folder / LOG).read_text())
    return number, host


def _stop(number: int, host: str, folder: Path) -> None:
    with suppress(ProcessLookupError):  # Ctrl-C on a terminal has ended it, too
        os.kill(number, signal.SIGTERM)
    assert until(lambda: not registries.answers(host)), "the registry does not end"
    shutil.rmtree(folder)  # hundreds of megabytes


def _push(client: docker.DockerClient, base: str, host: str) -> None:
    pushed = f"{host}/base"
    client.images.get(base).tag(pushed, "1")
    try:
        for line in client.images.push(pushed, "1", stream=True, decode=True):
            assert "error" not in line, line
    finally:
        client.images.remove(f"{pushed}:1")

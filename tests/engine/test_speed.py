"""The steps of a build under memory limits and with a remote storage of objects."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild import cmake
from ftbuild.plan import Plan
from testing import STEPS, needs
from testing.sample import Invoke, add_patch, build_arguments, sample_plan
from testing.storage import PROGRAM, bridge, redis

from .test_build import BROKEN_SOURCE, appended, first_line

if TYPE_CHECKING:
    import docker

# A step asks a storage for ten seconds at most; starting a container comes on top.
SILENT_SECONDS = 25.0
MOUNTED_STEPS = {str(STEPS): {"bind": "/steps", "mode": "ro"}}


@pytest.mark.parametrize(("memory", "jobs"), [("4g", "1"), ("7g", "2"), (None, "8"), ("1g", "1")])
def test_a_memory_limit_makes_the_jobs_fewer(
    client: docker.DockerClient, built: Plan, memory: str | None, jobs: str
) -> None:
    printed: bytes = client.containers.run(
        built.base.serving,
        ["sh", "-c", "/steps/job-count.sh 2> /dev/null"],
        environment={"JOBS": "8", "JOB_BYTES": str(cmake.MEMORY_PER_JOB_BYTES)},
        volumes=MOUNTED_STEPS,
        mem_limit=memory,
        remove=True,
    )
    assert printed.decode().strip() == jobs


@pytest.fixture
def storage(client: docker.DockerClient, tmp_path: Path) -> Iterator[str]:
    needs.program(PROGRAM)
    with redis(client, tmp_path) as address:
        yield address


def answers(client: docker.DockerClient, built: Plan, storage: str) -> bool:
    """Run the probe of a compile step against the storage."""
    printed: bytes = client.containers.run(
        built.base.devel,
        ["sh", "-c", "/steps/probe-storage.sh && echo yes || echo no"],
        environment={"CC": built.toolchain.cc, "CCACHE_REMOTE_STORAGE": storage},
        volumes=MOUNTED_STEPS,
        remove=True,
    )
    return printed.decode().strip() == "yes"


def test_a_storage_that_answers_is_used(client: docker.DockerClient, built: Plan, storage: str) -> None:
    assert answers(client, built, storage)


def test_a_storage_that_refuses_the_password_is_not_used(
    client: docker.DockerClient, built: Plan, storage: str
) -> None:
    assert not answers(client, built, storage.replace("sesame@", "wrong@"))


@pytest.mark.parametrize("address", ["redis://{host}:1", "redis://192.0.2.1", "gopher://{host}", "nonsense"])
def test_an_address_with_nothing_behind_it_is_not_used(
    client: docker.DockerClient, built: Plan, address: str
) -> None:
    assert not answers(client, built, address.format(host=bridge(client)))


def test_a_storage_that_is_silent_is_not_waited_for(client: docker.DockerClient, built: Plan) -> None:
    with socket.create_server((bridge(client), 0)) as listener:
        start = time.monotonic()
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(listener.accept()[0]), daemon=True)
        thread.start()
        host, port = listener.getsockname()
        assert not answers(client, built, f"redis://{host}:{port}")
        assert time.monotonic() - start < SILENT_SECONDS
        thread.join(100)
        for connection in taken:
            connection.close()


def test_a_build_shares_its_objects_and_keeps_the_password(
    built: Plan, invoke: Invoke, work: Path, sample_copy: Path, storage: str
) -> None:
    first = first_line(built.folder(work), BROKEN_SOURCE)
    comment = f'static const char* touched_by_a_test = "{time.time()}";'
    add_patch(sample_copy, "ft", "9000-touch.patch", appended(BROKEN_SOURCE, comment, first))
    done = invoke(*build_arguments(sample_copy), CCACHE_REMOTE_STORAGE=storage)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "compile steps have network access" in done.stdout
    assert "ftbuild: backend: ccache shares objects" in done.stdout
    assert "sesame" not in done.stdout
    folder = sample_plan(sample_copy).folder(work)
    assert "remote_storage_write" in (folder / "info" / "backend" / "ccache.statslog").read_text()

"""Triton's qa tests, run in the network and the shared memory of a server's container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon

from .qa_suites import Model, Suite

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

PYTHON = os.environ.get("FTBUILD_QA_PYTHON", sys.executable)
# What the tests import.
MODULES = (
    "tritonclient.http",
    "tritonclient.grpc",
    "tritonclient.http.aio",
    "ml_dtypes",
    "psutil",
    "pytest",
    "requests",
)
READY_SECONDS = 180
_PROGRAM = Path(__file__).parent / "programs" / "qa_tests.py"
# Any answer will do: a suite restricts the endpoints of health. The endpoints come after all models.
_READY = """
from urllib.error import HTTPError
from urllib.request import urlopen
try:
    urlopen("http://localhost:8000/v2/health/live")
except HTTPError:
    pass
"""
# The tests look for the server's shared memory in the folder of their own machine.
_CLIENT = 'mount --bind "$0" /dev/shm && cd "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class Ran:
    """What became of a suite: how many tests passed, which failed or skipped themselves, and why."""

    passed: int
    failed: Mapping[str, str]
    skipped: Mapping[str, str]


def write_repository(suite: Suite, qa: Path, folder: Path) -> None:
    """Write the models of a suite."""
    for name, model in suite.models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(_config(model, qa))
        if model.code:
            (version / "model.py").write_text(model.code)
        for source, target in model.files.items() if model.folder else ():
            shutil.copy(qa / model.folder / source, version / target)


def _config(model: Model, qa: Path) -> str:
    text = model.config or (qa / model.folder / "config.pbtxt").read_text()
    for pattern, replacement in model.edits.items():
        text = re.sub(pattern, replacement, text)
    return f"{text}\n{model.more}\n"


@contextmanager
def serving(
    client: docker.DockerClient, image: str, suite: Suite, repository: Path, folder: Path
) -> Iterator[Container]:
    """Run the server of a suite, without a network; its log and its shared memory are below `folder`."""
    memory, log = folder / "shm", folder / "log"
    memory.mkdir()
    log.mkdir()
    command = ["tritonserver", "--model-repository=/models", "--log-verbose=1", *suite.options]
    name = daemon.throw_away_name()
    container = client.containers.run(
        image,
        ["sh", "-c", 'exec "$@" > /log/server.log 2>&1', "sh", *command],
        detach=True,
        name=name,
        network_mode="none",
        labels=daemon.throw_away_labels("server"),
        volumes={
            str(repository): {"bind": "/models", "mode": "rw"},
            str(memory): {"bind": "/dev/shm", "mode": "rw"},
            str(log): {"bind": "/log", "mode": "rw"},
        },
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while container.exec_run(["python3", "-c", _READY]).exit_code:
            assert time.monotonic() < deadline, (log / "server.log").read_text()[-3000:]
            time.sleep(1)
        container.reload()
        yield container
    finally:
        daemon.remove_container(client, name)


def run(suite: Suite, qa: Path, container: Container, folder: Path) -> Ran:
    """Run the tests of a suite against its server."""
    pid, report = container.attrs["State"]["Pid"], folder / "report.json"
    file = qa / suite.file
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "unshare", "--mount", "sh", "-c", _CLIENT]
    command += [str(folder / "shm"), str(file.parent), PYTHON, str(_PROGRAM), str(report), file.stem]
    command += [suite.only, *suite.left_out]
    environment = {
        **os.environ, "SERVER_PID": str(pid), "SERVER_LOG": str(folder / "log" / "server.log"),
        "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=suite.seconds, check=False
    )
    assert report.exists(), said.stdout[-3000:] + said.stderr[-3000:]
    content = json.loads(report.read_text())
    return Ran(content["passed"], content["failed"], content["skipped"])

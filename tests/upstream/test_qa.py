"""Triton's own qa tests against the server that we compile: those that need no framework, GPU or cloud.

FTBUILD_QA_PYTHON names a Python with `tritonclient[http,grpc]`, ml_dtypes, psutil, requests, sseclient-py,
pytest and boofuzz. The tests are fetched with the server's sources, and never copied into this repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host import archives
from ftbuild.host.git import git
from testing import compiled_server, needs

from . import qa
from .qa_suites import SUITES, Suite

if TYPE_CHECKING:
    import docker

BRANCH = "refs/heads/r26.06"


@pytest.fixture(scope="module")
def tests(config: Config, need: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Upstream's folder qa, fetched by git."""
    need("server")
    folder = tmp_path_factory.mktemp("server")
    git("init", "--quiet", str(folder))
    git("-C", str(folder), "fetch", "--quiet", "--depth=1", config.sources.repositories["server"].url, BRANCH)
    archive = folder / "qa.tar"
    git("-C", str(folder), "archive", f"--output={archive}", "FETCH_HEAD", "qa")
    with archive.open("rb") as file:
        archives.unpack(file, folder / "files")
    return folder / "files" / "qa"


@pytest.fixture(scope="module")
def server() -> tuple[docker.DockerClient, str]:
    """The engine and the base whose server is compiled."""
    try:
        client = daemon.connect()
    except HostError as missing:
        needs.absent(needs.ENGINE, f"needs Docker Engine: {missing.what}")
    image = compiled_server.image(client)
    if os.geteuid():
        pytest.skip("needs root, to enter the network of the server's container")
    find = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    if subprocess.run([qa.PYTHON, "-c", find, *qa.MODULES], capture_output=True, check=False).returncode:
        pytest.skip("needs a Python with what Triton's qa imports: FTBUILD_QA_PYTHON")
    return client, image


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(suite, marks=pytest.mark.timeout(suite.seconds + qa.READY_SECONDS), id=suite.name)
        for suite in SUITES
    ],
)
def test_the_server_passes_upstreams_tests(
    suite: Suite, tests: Path, server: tuple[docker.DockerClient, str], tmp_path: Path
) -> None:
    client, image = server
    if "shm_util" in (tests / suite.file).read_text():
        pytest.skip("needs triton_shm_monitor, a module that our build of the Python backend leaves out")
    repository = tmp_path / "models"
    qa.write_repository(suite, tests, repository)
    with qa.serving(client, image, suite, repository, tmp_path) as container:
        ran = qa.run(suite, tests, container, tmp_path)
        container.reload()
        alive = container.status == "running"
    left_out = ", ".join(f"{name}: {reason}" for name, reason in suite.left_out.items()) or "nothing"
    counts = f"passed {ran.passed}, failed {len(ran.failed)}, skipped {len(ran.skipped)}"
    print(f"{suite.name}: {counts}; left out: {left_out}")
    print(*(f"  {name}: {why}" for name, why in {**ran.failed, **ran.skipped}.items()), sep="\n")
    assert not ran.failed
    assert ran.passed
    assert alive

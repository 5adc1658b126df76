"""A model repository in a real server of S3, fetched by a real rclone as the written containers start it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import docker
import pytest
import requests

from ftbuild import triton
from ftserve import stored
from ftserve.deployment import Deployment
from ftserve.image_choice import Image
from ftserve.targets import apptainer, compose
from testing import needs
from testing.serving import RIGHT, answer
from testing.waiting import listens, until_up
from tests.engine.ftserve.clients import environments
from tests.engine.ftserve.clients.table import Client

MOTO = Client("moto", "moto", "moto", "")
FETCHER = "registry.example.com/rclone/rclone:1.71"
KEYS = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
FILES = {
    "fastertransformer/config.pbtxt": b'name: "fastertransformer"',
    "fastertransformer/1/1-gpu/model.wte.bin": bytes(range(256)) * 4000,
}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """Return the address of a server of S3 with a bucket `models` and the repository `gptj` in it."""
    with storage("127.0.0.1", FILES, tmp_path / "moto.log") as url:
        yield url


@contextmanager
def storage(host: str, files: Mapping[str, bytes], log: Path) -> Iterator[str]:
    """Start a server of S3 on an address of this machine, with files in `models/gptj`."""
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    argv = [environments.interpreter(MOTO), "-m", "moto.server", "-H", host, "-p", str(port)]
    with log.open("w") as file:
        server = subprocess.Popen(argv, stdout=file, stderr=file)
    try:
        url = f"http://{host}:{port}"
        # Not only that the port is taken: another test's server may have been faster.
        until_up(server, lambda: listens(host, port) and _is_storage(url), log)
        requests.put(f"{url}/models", timeout=60).raise_for_status()
        for name, content in files.items():
            requests.put(f"{url}/models/gptj/{name}", data=content, timeout=60).raise_for_status()
        yield url
    finally:
        server.terminate()
        server.wait(60)


def _is_storage(url: str) -> bool:
    return requests.get(f"{url}/moto-api/", timeout=60).ok


def fetched(where: stored.Stored, folder: Path) -> subprocess.CompletedProcess[str]:
    """Start what the container starts, with another folder in the place of its volume."""
    argv = [word if word != triton.MODELS else str(folder) for word in where.command]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **KEYS, **where.environment}
    return subprocess.run(
        [needs.program("rclone"), *argv, "--retries=1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_rclone_fetches_the_repository(endpoint: str, tmp_path: Path) -> None:
    folder = tmp_path / "fetched"
    done = fetched(stored.parse("s3://models/gptj", FETCHER, endpoint), folder)
    assert done.returncode == 0, done.stderr
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(FILES)
    assert all((folder / name).read_bytes() == content for name, content in FILES.items())


def test_what_is_fetched_already_is_not_fetched_again(endpoint: str, tmp_path: Path) -> None:
    where = stored.parse("s3://models/gptj", FETCHER, endpoint)
    fetched(where, tmp_path / "fetched")
    weights = tmp_path / "fetched" / "fastertransformer" / "1" / "1-gpu" / "model.wte.bin"
    before = weights.stat()
    again = fetched(where, tmp_path / "fetched")
    assert again.returncode == 0
    assert weights.stat().st_ino == before.st_ino
    # Unless it is another by now.
    weights.write_bytes(bytes(before.st_size))
    assert fetched(where, tmp_path / "fetched").returncode == 0
    assert weights.read_bytes() == FILES["fastertransformer/1/1-gpu/model.wte.bin"]


def test_the_script_beside_a_batch_script_fetches_it(
    endpoint: str, wanted: Deployment, tmp_path: Path
) -> None:
    where = stored.parse("s3://models/gptj", "rclone", endpoint)
    files = apptainer.render(replace(wanted, models=None), stored=where)
    script = tmp_path / "my folder" / apptainer.FETCH
    script.parent.mkdir()
    script.write_text(files[apptainer.FETCH])
    needs.program("rclone")
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **KEYS}
    done = subprocess.run(["bash", script], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = script.parent / apptainer.FETCHED
    assert all((found / name).read_bytes() == content for name, content in FILES.items())
    assert "default=$here/models" in files[apptainer.START]


@pytest.fixture
def fetcher(client: docker.DockerClient, sample_image: Image, tmp_path: Path) -> Iterator[str]:
    """An image with rclone as its entrypoint, as `--fetch-image` wants one."""
    (tmp_path / "image").mkdir()
    shutil.copy(needs.program("rclone"), tmp_path / "image" / "rclone")
    recipe = f'FROM {sample_image.name}\nUSER 0\nCOPY rclone /usr/bin/rclone\nENTRYPOINT ["rclone"]\n'
    (tmp_path / "image" / "Dockerfile").write_text(recipe)
    name = f"ftbuild-test-rclone:{uuid.uuid4().hex[:8]}"
    client.images.build(path=str(tmp_path / "image"), tag=name, rm=True)
    yield name
    client.images.remove(name, force=True)


def test_compose_fetches_and_serves(
    client: docker.DockerClient, wanted: Deployment, fetcher: str, tmp_path: Path
) -> None:
    assert wanted.models is not None
    # Object storage has no empty folders, and Triton finds the version of a model by one.
    (wanted.models / "fastertransformer" / "1" / "weights").write_text("none: it answers by a rule")
    files = {
        path.relative_to(wanted.models).as_posix(): path.read_bytes()
        for path in wanted.models.rglob("*")
        if path.is_file()
    }
    host = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    file = tmp_path / "compose.yaml"
    program = [*needs.compose(), "--file", str(file)]
    with storage(host, files, tmp_path / "moto.log") as url:
        where = stored.parse("s3://models/gptj", fetcher, url)
        text = compose.render(replace(wanted, models=None), where)
        file.write_text(text.replace("interval: 10s", "interval: 1s"))
        try:
            begin = [*program, "up", "--detach", "--wait", "--wait-timeout", "90"]
            done = subprocess.run(
                begin, env={**os.environ, **KEYS}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert answer(wanted.ports.http) == RIGHT
        finally:
            subprocess.run([*program, "down", "--volumes", "--timeout", "1"], capture_output=True, check=True)


def test_a_bucket_that_does_not_exist_fails_before_the_server_starts(endpoint: str, tmp_path: Path) -> None:
    done = fetched(stored.parse("s3://missing/gptj", FETCHER, endpoint), tmp_path / "fetched")
    assert done.returncode != 0

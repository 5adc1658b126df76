"""A model repository in a real server of S3, fetched by a real rclone as the written containers start it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from ftbuild import triton
from ftserve import stored
from testing import needs
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [environments.interpreter(MOTO), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path / "moto.log"
    with log.open("w") as file:
        server = subprocess.Popen(argv, stdout=file, stderr=file)
    try:
        until_up(server, lambda: listens("127.0.0.1", port), log)
        url = f"http://127.0.0.1:{port}"
        requests.put(f"{url}/models", timeout=60).raise_for_status()
        for name, content in FILES.items():
            requests.put(f"{url}/models/gptj/{name}", data=content, timeout=60).raise_for_status()
        yield url
    finally:
        server.terminate()
        server.wait(60)


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


def test_a_bucket_that_does_not_exist_fails_before_the_server_starts(endpoint: str, tmp_path: Path) -> None:
    done = fetched(stored.parse("s3://missing/gptj", FETCHER, endpoint), tmp_path / "fetched")
    assert done.returncode != 0

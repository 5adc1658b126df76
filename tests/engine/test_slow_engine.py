"""An engine that takes its time, as that of a machine with a busy disk."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker.client
import pytest
from docker.utils import parse_host

from ftbuild.cli.demo import model_repository
from ftbuild.client import server_container
from ftbuild.plan import Plan

# The SDK's own patience, and what the engine takes for it: a sixtieth of 60 s, and more.
PATIENCE, WORK = 1, 1.5
SLOW = (b"PUT ", b"DELETE ")


@contextlib.contextmanager
def slow(upstream: Path, there: Path) -> Iterator[list[bytes]]:
    """Listen at a socket for requests to the engine; those that write files or remove something wait.

    Yields the methods of those that waited.
    """
    waited: list[bytes] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if piece.startswith(SLOW):
                    waited.append(piece.partition(b" ")[0])
                    time.sleep(WORK)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as engine:
                engine.connect(str(upstream))
                answers = threading.Thread(target=pump, args=(engine, self.request))
                answers.start()
                pump(self.request, engine)
                answers.join()

    with socketserver.ThreadingUnixStreamServer(str(there), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield waited
        server.shutdown()


def test_a_server_starts_and_ends_where_the_engine_is_slow(
    built: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, _, path = str(parse_host(os.environ.get("DOCKER_HOST"))).partition("://")
    if scheme != "http+unix":
        pytest.skip("needs an engine at a socket")
    monkeypatch.setattr(docker.client, "DEFAULT_TIMEOUT_SECONDS", PATIENCE)
    models = model_repository(tmp_path)
    with (
        tempfile.TemporaryDirectory() as folder,  # whose path is short enough for a socket
        slow(Path("/", path), Path(folder, "slow.sock")) as waited,
    ):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/slow.sock")
        with server_container.serve(built.tag("runtime"), models) as running:
            assert running.alive()
    assert {b"PUT", b"DELETE"} <= set(waited)

"""An engine that does not answer: what a command says, and that it leaves nothing open."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import pytest

from ftbuild.engine import daemon
from ftbuild.errors import HostError


def closed(folder: Path) -> str:
    """Return the address of a socket at which nobody listens."""
    file = folder / "closed.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))
    return f"unix://{file}"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("unix:///nowhere/docker.sock", "No such file or directory: /nowhere/docker.sock"),
        ("unix://nowhere/docker.sock", "No such file or directory: /nowhere"),
        ("unix:///etc/passwd", "Connection refused: /etc/passwd"),
        (f"unix:///{'a' * 200}", "AF_UNIX path too long"),
        ("closed", "Connection refused: "),
        ("tcp://127.0.0.1:1", "port=1"),
        ("/var/run/docker.sock", "Invalid bind address format"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_an_engine_that_is_not_there_is_named_and_no_socket_stays_open(
    host: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", closed(tmp_path) if host == "closed" else host)
    with pytest.raises(HostError, match="the Docker Engine does not answer") as raised:
        daemon.connect()
    assert why in str(raised.value.where)
    assert f"start the one at DOCKER_HOST={os.environ['DOCKER_HOST']}" in str(raised.value.hint)
    del raised  # whose frames hold what was opened
    gc.collect()  # which warns of each open socket


def test_who_may_not_use_the_socket_is_told_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(self: socket.socket, address: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(HostError, match="may not use the Docker Engine") as raised:
        daemon.connect()
    assert "usermod -aG docker" in str(raised.value.hint)

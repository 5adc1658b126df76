"""An engine that does not answer: what a command says, and that it leaves nothing open."""

from __future__ import annotations

import errno
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild.engine import container, daemon
from ftbuild.errors import HostError, Interrupted
from ftbuild.host import shell
from testing import ROOT


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


def refused(monkeypatch: pytest.MonkeyPatch, cause: OSError) -> HostError:
    """Return the error where the system lets nobody connect to a socket, for this cause."""

    def connect(self: socket.socket, address: str) -> None:
        raise cause

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(HostError) as raised:
        daemon.connect()
    return raised.value


def test_a_user_outside_the_group_is_told_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    error = refused(monkeypatch, PermissionError(errno.EACCES, "Permission denied"))
    assert error.what == "this user may not use the Docker Engine"
    assert error.where == "Permission denied: /var/run/docker.sock"
    assert "usermod -aG docker" in (error.hint or "")


@pytest.mark.parametrize("named", [None, ""])
def test_an_engine_that_nothing_names_is_to_be_started(
    monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if named is not None:
        monkeypatch.setenv("DOCKER_HOST", named)
    error = refused(monkeypatch, FileNotFoundError(errno.ENOENT, "No such file or directory"))
    assert error.what == "the Docker Engine does not answer"
    assert error.where == "No such file or directory: /var/run/docker.sock"
    assert "systemctl start docker" in (error.hint or "")


class Pulling:
    """An engine that pulls for a long time, and says so, and what fails at last."""

    def __init__(self, image: str | None, events: int, error: str = "") -> None:
        self.image, self.events, self.told, self.error = image, events, 0, error

    @property
    def client(self) -> Any:
        return SimpleNamespace(images=SimpleNamespace(get=self.get), api=SimpleNamespace(pull=self.pull))

    def pull(self, repository: str, tag: str, *, stream: bool, decode: bool) -> Iterator[dict[str, str]]:
        for _ in range(self.events):
            self.told += 1
            yield {"status": "Extracting"}
        if self.error:
            yield {"error": self.error}

    def get(self, name: str) -> str:
        if self.image is None:
            raise ImageNotFound(name)
        return self.image


def test_a_pull_in_a_thread_ends_with_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep the command until the last of its gigabytes is unpacked."""
    engine = Pulling("sha256:1", 1000)
    monkeypatch.setattr(shell, "_stopped", Event())
    daemon.pull(engine.client, "r.example/x:1")
    assert engine.told == 1000
    shell.interrupt()
    with pytest.raises(Interrupted):
        daemon.pull(engine.client, "r.example/x:1")
    assert engine.told == 1001


def test_what_stops_a_pull_later_is_told_as_the_engine_tells_it() -> None:
    """And not that there is no such image, which is so by then."""
    engine = Pulling(None, 2, "dial tcp 127.0.0.1:5000: connect: connection refused")
    with pytest.raises(daemon.PullRefused, match=r"cannot pull: dial tcp .* connection refused"):
        daemon.pull(engine.client, "r.example/x:1")
    with pytest.raises(HostError, match=r"smoke needs the image r\.example/x:1") as lacking:
        container.available(engine.client, "r.example/x:1", "smoke", "load it")
    assert "connection refused" in str(lacking.value.where)


def test_only_one_piece_of_code_pulls() -> None:
    """The SDK's own function hides why, and does not end with Ctrl-C in a thread."""
    texts = {
        path: path.read_text() for room in ("ftbuild", "ftserve") for path in (ROOT / room).rglob("*.py")
    }
    assert texts
    assert [path for path, text in texts.items() if "images.pull(" in text] == []


def test_a_pull_that_ends_without_the_image_was_refused() -> None:
    with pytest.raises(daemon.PullRefused, match="cannot pull"):
        daemon.pull(Pulling(None, 2).client, "r.example/x:1")


@pytest.mark.parametrize(
    ("url", "readable", "place"),
    [
        ("http+docker://localhost", True, "/var/lib/docker"),
        ("http+docker://localhost", False, "/var/lib"),
        ("https://gpu.example.com:2376", True, None),
    ],
)
def test_what_an_engine_of_this_machine_has_unpacked_is_written_to_its_disk_alone(
    url: str, readable: bool, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file system, of a server that is gone, say, would be waited for."""
    ran: list[Any] = []
    monkeypatch.setattr(shell, "run", lambda argv, **more: ran.append(argv))
    monkeypatch.setattr(os, "access", lambda path, mode: readable)
    client: Any = SimpleNamespace(
        api=SimpleNamespace(base_url=url), info=lambda: {"DockerRootDir": "/var/lib/docker"}
    )
    daemon.flush(client)
    assert ran == ([["sync", "--file-system", place]] if place else [])


def test_a_machine_that_cannot_write_on_request_writes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    client: Any = SimpleNamespace(
        api=SimpleNamespace(base_url="http+docker://localhost"),
        info=lambda: {"DockerRootDir": "/nonexistent"},
    )
    daemon.flush(client)

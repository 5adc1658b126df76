"""The program that starts several nodes, in this process: what it hands out, believes, and says.

How its processes find each other, start and end is in test_several_nodes.py.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ftserve import node_group
from testing.registries import free_port

DAEMON = ["orted", "-mca", "uri", "7.0;tcp://[::]:1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where mpirun's daemons wait for their nodes."""
    place = tmp_path / "group"
    place.mkdir()
    monkeypatch.setenv("NODE_GROUP_FOLDER", str(place))
    monkeypatch.setenv("NODE_GROUP_KEY", "f00d")
    return place


Serve = Callable[[type[BaseHTTPRequestHandler]], int]


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Start a server of this process, and return its port."""
    servers: list[ThreadingHTTPServer] = []

    def start(handler: type[BaseHTTPRequestHandler]) -> int:
        servers.append(ThreadingHTTPServer(("localhost", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def answering(body: bytes, *, status: int = 200, signed: str | None = None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if signed is not None:
                self.send_header("X-Signature", signed)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def test_what_mpirun_would_give_to_a_login_becomes_the_command_of_a_daemon(folder: Path) -> None:
    """The rest of the line is for a shell that logs in."""
    line = [
        "( test ! -r ./.profile || . ./.profile;",
        "/usr/bin/orted",
        "-mca",
        "uri",
        "'7.0;tcp://[::]:1'",
        ")",
    ]
    assert node_group.main(["agent", "node3", *line]) == 0
    assert json.loads((folder / "node3").read_text()) == ["/usr/bin/orted", *DAEMON[1:]]
    assert [file.name for file in folder.iterdir()] == ["node3"]


def test_another_daemon_than_open_mpis_fourth_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_group.main(["agent", "node1", "prted", "-mca"]) == 1
    assert capsys.readouterr().err == "mpirun does not start orted, as Open MPI 4 does, but: prted -mca\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["node1", "node9999"])
def test_a_node_fetches_its_daemon(folder: Path, serve: Serve, name: str) -> None:
    port = serve(node_group.Handler)
    with pytest.raises(OSError, match=r"^status 404$"):
        node_group.fetch("localhost", port, name)
    node_group.agent([name, *DAEMON[:-1], "'7.0;tcp://[::]:1'"])
    assert node_group.fetch("localhost", port, name) == DAEMON


@pytest.mark.parametrize("name", ["node0", "node10000", "node01", "nodes", "node", ".node1", "anode1"])
def test_nothing_else_in_the_folder_is_handed_out(folder: Path, serve: Serve, name: str) -> None:
    (folder / name).write_text(json.dumps(DAEMON))
    with pytest.raises(OSError, match=r"^status 404$"):
        node_group.fetch("localhost", serve(node_group.Handler), name)


def test_an_answer_has_its_length_and_its_proof(
    folder: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    node_group.agent(["node1", *DAEMON[:-1], "x"])
    connection = http.client.HTTPConnection("localhost", serve(node_group.Handler), timeout=60)
    connection.request("GET", "/node1")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.getheader("Content-Length") == str(len(body))
    assert answer.getheader("X-Signature") == node_group.signature("node1", body)
    assert capsys.readouterr() == ("", "")  # every node asks once a second


def test_a_proof_is_for_one_node_one_command_and_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_GROUP_KEY", "f00d")
    # HMAC-SHA256 of "node1", a zero byte and the command, as any other program computes it.
    known = "78b12713ec988319"
    found = node_group.signature("node1", b"[]")
    assert (len(found), found[:16]) == (64, known)
    others = {node_group.signature("node2", b"[]"), node_group.signature("node1", b"[1]")}
    monkeypatch.setenv("NODE_GROUP_KEY", "f00e")
    others.add(node_group.signature("node1", b"[]"))
    monkeypatch.delenv("NODE_GROUP_KEY")
    others.add(node_group.signature("node1", b"[]"))
    assert len(others - {found}) == 4


@pytest.mark.parametrize(
    ("body", "status", "signed", "reason"),
    [
        (b"", 500, None, r"^status 500$"),
        (b"[]", 200, None, r"^it has the key of another group$"),
        (b'["orted"]', 200, "00", r"^it has the key of another group$"),
        (b'["/bin/sh", "orted"]', 200, "own", r"^it does not start orted$"),
    ],
)
def test_no_other_leader_is_believed(
    serve: Serve, body: bytes, status: int, signed: str | None, reason: str
) -> None:
    proof = node_group.signature("node1", body) if signed == "own" else signed
    with pytest.raises(OSError, match=reason):
        node_group.fetch("localhost", serve(answering(body, status=status, signed=proof)), "node1")


def test_a_leader_that_says_nothing_is_asked_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose network is lost while it answers must not hold up the others for ever."""
    silent = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            silent.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(node_group, "TIMEOUT_SECONDS", 0.2)
    try:
        with pytest.raises(OSError, match="timed out"):
            node_group.fetch("localhost", serve(Silent), "node1")
    finally:
        silent.set()


def test_what_is_no_http_is_no_leader(serve: Serve) -> None:
    class Broken(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"SSH-2.0\r\n")

        def log_message(self, *_: object) -> None:
            pass

    with pytest.raises(OSError, match=r"^no answer of a leader: BadStatusLine"):
        node_group.fetch("localhost", serve(Broken), "node1")


class Became(Exception):
    """In the place of a process that becomes another program."""


def test_a_node_waits_for_its_daemon_and_becomes_it(
    folder: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = serve(node_group.Handler)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            node_group.agent(["node2", "orted", "-x"])

    def become(name: str, words: list[str]) -> None:
        raise Became(name, *words)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(os, "execvp", become)
    with pytest.raises(Became) as became:
        node_group.main(["follow", "localhost", str(port), "2"])
    assert became.value.args == ("orted", "orted", "-x")
    assert waited == [1, 1]
    assert capsys.readouterr().out == f"node2: waiting for localhost:{port}\nnode2: starting\n"


def test_a_node_gives_up_after_half_an_hour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 450))
    port = free_port()
    assert node_group.follow("localhost", port, 1) == 1
    assert now == [1000.0 + 1800]
    said = capsys.readouterr().err
    assert said.startswith(f"node1: no leader at localhost:{port} in 1800 seconds: [Errno ")


@pytest.fixture
def signals() -> Iterator[None]:
    """Leave this process's own handlers as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("then", "code"), [("exit 86", 86), ("kill -KILL $$", 137)])
def test_a_leader_ends_as_its_mpirun_does(
    folder: Path, signals: None, monkeypatch: pytest.MonkeyPatch, then: str, code: int
) -> None:
    assert node_group.main(["lead", str(free_port()), "sh", "-c", then]) == code


def test_a_leader_tells_mpirun_how_to_start_daemons(
    folder: Path, signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own settings of Open MPI count before those."""
    for name in [name for name in os.environ if name.startswith("OMPI_")]:
        monkeypatch.delenv(name)  # some machines have such settings for all
    monkeypatch.setenv("OMPI_MCA_btl", "tcp")
    said = tmp_path / "said"
    assert (
        node_group.lead(free_port(), ["sh", "-c", f"env > {said}; ls -d $NODE_GROUP_FOLDER >> {said}"]) == 0
    )
    lines = said.read_text().splitlines()
    program = Path(node_group.__file__).resolve()
    settings = dict(
        line.removeprefix("OMPI_MCA_").split("=", 1) for line in lines if line.startswith("OMPI_")
    )
    assert settings == {
        "plm": "rsh",
        "plm_rsh_no_tree_spawn": "1",
        "orte_leave_session_attached": "1",
        "pml": "ob1",
        "btl": "tcp",
        "mpi_yield_when_idle": "1",
        "plm_rsh_agent": f"{sys.executable} {program} agent",
    }
    assert not Path(lines[-1]).exists()


# Until the leader catches the signal, which would end this process.
CATCHES = """
until [ $((0x$(sed -n 's/^SigCgt:[^0-9a-f]*//p' /proc/{pid}/status) >> 14 & 1)) = 1 ]; do sleep 0.05; done
"""


def test_a_signal_for_a_leader_goes_to_its_mpirun(folder: Path, signals: None) -> None:
    """And the code is that of mpirun, which may end in its own way."""
    pid = os.getpid()
    script = (
        f"trap 'exit 7' TERM; {CATCHES.format(pid=pid)} kill -TERM {pid}; "
        "for _ in $(seq 200); do sleep 0.05; done"
    )
    assert node_group.lead(free_port(), ["sh", "-c", script]) == 7


@pytest.mark.parametrize("caught", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_mpirun_starts_goes_to_it(
    folder: Path, signals: None, monkeypatch: pytest.MonkeyPatch, caught: signal.Signals
) -> None:
    start = os.posix_spawnp

    def signalled(*arguments: Any, **settings: Any) -> int:
        running = start(*arguments, **settings)
        signal.raise_signal(caught)
        return running

    def left_alone(*_: object) -> None:
        pytest.fail("the leader would have ended without its mpirun")

    monkeypatch.setattr(os, "posix_spawnp", signalled)
    # Neither ignored, as SIGINT is by what a shell has started in the background.
    signal.signal(caught, left_alone)
    assert node_group.lead(free_port(), ["sleep", "20"]) == 128 + caught


def test_a_port_of_another_server_is_named(
    folder: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    for port in (serve(node_group.Handler), 70000):
        assert node_group.lead(port, ["true"]) == 1
        assert capsys.readouterr().err.startswith(f"port {port} for the other nodes: ")

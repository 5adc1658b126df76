"""A program that starts one MPI rank on each of several nodes, with nothing but Python and Open MPI on them.

    python3 node_group.py lead PORT mpirun ...         on the first node
    python3 node_group.py follow LEADER PORT RANK      on each other one

mpirun starts its daemon on another node by a remote shell, for which no image has a server. Here it is the
other way round: mpirun hands the daemon's command line to this program (`agent`), and the node, which knows
its rank, fetches it over HTTP and becomes the daemon. If mpirun ends or its node is lost, so do all daemons;
if a daemon is lost, mpirun ends. With NODE_GROUP_KEY in the environment, the same on all nodes, no other
leader is believed. It runs alone, with Python 3.8 or later.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

KEY, FOLDER = "NODE_GROUP_KEY", "NODE_GROUP_FOLDER"
SIGNATURE = "X-Signature"
# The daemon of Open MPI 4; version 5 has another one, and starts it in another way.
DAEMON = "orted"
_NODE = re.compile(r"node[1-9][0-9]{0,3}")
POLL_SECONDS, TIMEOUT_SECONDS = 1, 10
# Pods and their images may come late; a probe of the leader waits as long for its models.
PATIENCE_SECONDS = 1800
# No command line of a daemon comes near it.
MAX_BYTES = 2**20
SETTINGS = {
    "plm": "rsh",
    # All daemons are started from here, and stay in the foreground: each is the process of its container.
    "plm_rsh_no_tree_spawn": "1",
    "orte_leave_session_attached": "1",
    # Only requests go through MPI: those few bytes need no InfiniBand, which may fail in a container.
    "pml": "ob1",
    "btl": "self,tcp",
    # A rank waits for the next request in a loop: it lets others have the core.
    "mpi_yield_when_idle": "1",
}


def signature(name: str, command: bytes) -> str:
    """Return what proves that a command for this node is of the group, as hexadecimal digits."""
    key = os.environ.get(KEY, "")
    return hmac.new(key.encode(), name.encode() + b"\0" + command, hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers `/nodeN` with the command line of that node's daemon, once mpirun has given it."""

    timeout = TIMEOUT_SECONDS

    def do_GET(self) -> None:
        """Answer with 404 as long as there is no such command."""
        name = self.path[1:]
        if not _NODE.fullmatch(name) or not (file := Path(os.environ[FOLDER], name)).exists():
            self.send_error(404)
            return
        command = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(command)))
        self.send_header(SIGNATURE, signature(name, command))
        self.end_headers()
        self.wfile.write(command)

    def log_message(self, *_: object) -> None:
        """Say nothing: every node asks once a second."""


FORWARDED = (signal.SIGTERM, signal.SIGINT)


def lead(port: int, command: Sequence[str]) -> int:
    """Run mpirun, its daemons on the nodes that ask here; returns its exit code, 128 + a signal's number."""
    try:
        server = http.server.ThreadingHTTPServer(("", port), Handler)
    except (OSError, OverflowError) as refused:
        print(f"port {port} for the other nodes: {refused}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="node-group-") as folder:
        os.environ[FOLDER] = folder
        # Until they are forwarded, they wait: one that ended this program would leave mpirun behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {**SETTINGS, "plm_rsh_agent": f"{sys.executable} {Path(__file__).resolve()} agent"}
        variables = {f"OMPI_MCA_{name}": value for name, value in settings.items()}
        running = os.posix_spawnp(command[0], list(command), {**variables, **os.environ}, setsigmask=())

        def forward(caught: int, _: FrameType | None) -> None:
            os.kill(running, caught)

        for number in FORWARDED:
            signal.signal(number, forward)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        _, status = os.waitpid(running, 0)
        server.shutdown()
        server.server_close()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def agent(arguments: Sequence[str]) -> int:
    """Put down the daemon for a node; mpirun calls it as it would ssh: HOST COMMAND..."""
    name, *line = arguments
    # What a login needs stands around it: ( test ! -r ./.profile || . ./.profile; orted ... )
    words = shlex.split(" ".join(line))
    start = next((place for place, word in enumerate(words) if Path(word).name == DAEMON), None)
    if start is None:
        print(f"mpirun does not start {DAEMON}, as Open MPI 4 does, but: {' '.join(line)}", file=sys.stderr)
        return 1
    folder = Path(os.environ[FOLDER])
    partial = folder / f".{name}"
    partial.write_text(json.dumps([word for word in words[start:] if word != ")"]))
    partial.rename(folder / name)
    return 0


def fetch(leader: str, port: int, name: str) -> list[str]:
    """Return the daemon for this node; OSError with a reason where there is none, or not yet."""
    connection = http.client.HTTPConnection(leader, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        command = answer.read(MAX_BYTES)
    except http.client.HTTPException as broken:
        raise OSError(f"no answer of a leader: {broken!r}") from broken
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"status {answer.status}")
    if not hmac.compare_digest(answer.getheader(SIGNATURE, ""), signature(name, command)):
        raise OSError("it has the key of another group")
    words = json.loads(command)
    if Path(words[0]).name != DAEMON:
        raise OSError(f"it does not start {DAEMON}")
    return list(words)


def follow(leader: str, port: int, rank: int) -> int:
    """Become the daemon of this node, once the leader has it; returns 1 if it never does."""
    name = f"node{rank}"
    print(f"{name}: waiting for {leader}:{port}", flush=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    reason = ""
    while time.monotonic() < deadline:
        try:
            command = fetch(leader, port, name)
        except OSError as missing:
            reason = str(missing)
        else:
            print(f"{name}: starting", flush=True)
            os.execvp(command[0], command)
        time.sleep(POLL_SECONDS)
    print(f"{name}: no leader at {leader}:{port} in {PATIENCE_SECONDS} seconds: {reason}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says."""
    what, *others = arguments
    if what == "agent":
        return agent(others)
    if what == "lead":
        port, *command = others
        return lead(int(port), command)
    leader, port, rank = others
    return follow(leader, int(port), int(rank))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

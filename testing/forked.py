"""Commands of ftbuild in processes of their own that have loaded its modules already.

What `python -m invoke` imports takes longer than most commands do, and the tests run hundreds of them. Here a
server, one for each process of the test run, imports it once and forks for every command. Invoke's own
entry point runs there, with the arguments, folder and environment that it is given; its output and exit code
are those of a program. What is measured, is sent signals, or is about the start itself, is started as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from testing import ROOT

# What commands import, and that takes time. No module of these depends on the environment when it is loaded;
# those of `ftbuild.cli` do: options have defaults from there.
LOADED = (
    "invoke.main",
    "docker",
    "jinja2",
    "pydantic",
    "requests",
    "rich.progress",
    "tabulate",
    "yaml",
    "ftbuild.audit.report",
    "ftbuild.build.run",
    "ftbuild.config.loader",
    "ftbuild.models.repository",
    "ftbuild.nightly.run",
    "ftbuild.pipeline",
    "ftbuild.publishing.publish",
)


def invoke(
    *arguments: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run `invoke` and return its output and exit code; `env` is its whole environment, by default ours.

    Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    argv = ["invoke", "--search-root", str(ROOT), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        output, errors = (Path(folder) / name for name in ("stdout", "stderr"))
        for file in (output, errors):
            file.touch()
        request = [argv, str(cwd), dict(os.environ if env is None else env), str(output), str(errors)]
        code = _ask(json.dumps(request), timeout)
        return subprocess.CompletedProcess(argv, code, output.read_text(), errors.read_text())


def _ask(request: str, timeout: float) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(_server(), [b"."], [theirs.fileno()])
        with ours.makefile("rw", encoding="utf-8") as channel:
            print(request, file=channel, flush=True)
            number = int(channel.readline())
            ours.settimeout(timeout)
            try:
                return int(channel.readline())
            except TimeoutError:
                os.kill(number, signal.SIGKILL)
                raise subprocess.TimeoutExpired(json.loads(request)[0], timeout) from None


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-m", __name__, str(theirs.fileno())]
        server = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork for each socket that comes, until the process that sends them has ended."""
    for module in LOADED:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while given := socket.recv_fds(requests, 1, 1)[1]:
        if not os.fork():
            requests.close()
            _answer(socket.socket(fileno=given[0]))
        os.close(given[0])


def _answer(asked: socket.socket) -> NoReturn:
    """Run the command that is asked for in a fork, and tell its process number and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Who has asked may have left, after the time for the command.
    with contextlib.suppress(OSError), asked, asked.makefile("rw", encoding="utf-8") as channel:
        argv, folder, variables, *files = json.loads(channel.readline())
        number = os.fork()
        if not number:
            asked.close()
            _command(argv, folder, variables, files)
        print(number, file=channel, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), file=channel, flush=True)
    os._exit(0)


def _command(argv: list[str], folder: str, variables: dict[str, str], files: Sequence[str]) -> NoReturn:
    """Be the program: its standard streams, folder and environment, then its entry point."""
    from invoke.main import program

    code: object = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files, start=1):
            opened = os.open(file, os.O_WRONLY | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.argv = argv
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        program.run(argv)
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(bool(code)))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)

"""Commands of ftbuild in processes of their own that have loaded its modules already.

What `python -m invoke` imports takes longer than most commands do, and the tests run hundreds of them. Here a
server, one for each process of the test run, imports it once and forks for every command. Invoke's own
entry point runs there, with the arguments, folder and environment that it is given; its output and exit code
are those of a program. What is about the start of the interpreter, or is sent signals, is started as usual.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

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
    "ftbuild.serving.deployment",
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
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        given = (argv, str(cwd), dict(os.environ if env is None else env), *map(str, files))
        process = _server().Process(target=_command, args=given)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(argv, timeout)
        output, errors = (file.read_text() if file.exists() else "" for file in files)
        code = process.exitcode
        process.close()
    return subprocess.CompletedProcess(argv, code, output, errors)


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LOADED])
    return context


def _command(argv: list[str], folder: str, variables: dict[str, str], *files: str) -> None:
    from invoke.main import program

    for number, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    sys.stdin = io.TextIOWrapper(io.FileIO(os.devnull))
    sys.argv = argv
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    tempfile.tempdir = None
    program.run(argv)

"""Other engines, each in a process of its own: start, answers, end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks.topics.inference import engine
from benchmarks.topics.inference.life import Life
from ftbuild.errors import SmokeError
from ftbuild.host import shell

if TYPE_CHECKING:
    from benchmarks.topics.inference.engine import Sizes
    from benchmarks.topics.inference.sides import Prompts

ROOT = Path(__file__).parents[3]
# vLLM compiles the model when it starts for the first time.
READY_SECONDS = 600.0
END_SECONDS = 30.0
# Nothing is looked up on the internet, and no usage is reported.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class Peer:
    """A running engine."""

    prompt = None

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Send one request with all prompts; SmokeError if the engine has ended."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(
                json.dumps({"prompts": prompts.tolist(), "length": length}),
                file=self._process.stdin,
                flush=True,
            )
        tokens: list[list[int]] = reply(self.name, self._process.stdout)["tokens"]
        return tokens


def prepare(name: str, checkpoint: Path) -> None:
    """Write what the engine `name` needs beside a checkpoint; raises the failure of the program that does."""
    shell.run(command(name, checkpoint, "--prepare"), cwd=ROOT)


@contextlib.contextmanager
def started(name: str, checkpoint: Path, sizes: Sizes, device: str, log: Path) -> Iterator[Life[Peer]]:
    """Start the engine `name`, and end it with the block; SmokeError if it ends first. It logs to `log`."""
    limits = (f"--tokens={sizes.tokens}", f"--rows={sizes.rows}")
    argv = command(name, checkpoint, *limits, f"--device={device}")
    with log.open("wb") as sink:
        start = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
        assert process.stdout
        late = threading.Timer(READY_SECONDS, _kill, [process])
        late.start()
        try:
            about = reply(name, process.stdout)
            late.cancel()
            settings = {"version": about["version"], **about["settings"]}
            yield Life(Peer(name, process), time.monotonic() - start, settings=settings)
        finally:
            late.cancel()
            _end(process)


def command(name: str, checkpoint: Path, *options: str) -> list[str]:
    """Return the command of the engine's process."""
    return [sys.executable, "-m", engine.__name__, name, str(checkpoint), *options]


def reply(name: str, lines: IO[str]) -> Mapping[str, Any]:
    """Read the next reply of the engine `name`; SmokeError if there is none."""
    if not (line := lines.readline()):
        raise SmokeError(f"{name} has ended", hint="its log is beside the record")
    message: Mapping[str, Any] = json.loads(line)
    return message


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    _kill(process)
    process.wait()
    process.stdout.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the engine's process with those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

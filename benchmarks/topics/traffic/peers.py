"""Other engines as servers: vLLM's own of OpenAI's protocol, and a batcher before CTranslate2."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.topics.inference import engine, peers, server
from benchmarks.topics.inference.life import Life
from benchmarks.topics.traffic import batcher
from benchmarks.topics.traffic.sides import Completions
from ftbuild.errors import SmokeError

MODEL = "model"
NUMBERS = {"fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class Setting:
    """What a peer is started for: the longest prompt with its answer, in tokens, and the most clients.

    0 clients: unknown.
    """

    tokens: int
    clients: int
    data_type: str = "fp16"
    device: str = "cuda"
    streamed: bool = False


def _vllm(checkpoint: Path, setting: Setting, port: int) -> list[str]:
    """Return the command of vLLM's server: its defaults, without prefix caching, since no prompts are alike.

    Its limit is the number of clients, so that it captures graphs for no larger batches.
    """
    rows = [f"--max-num-seqs={setting.clients}"] if setting.clients else []
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *(f"--model={checkpoint}", f"--served-model-name={MODEL}", "--host=127.0.0.1", f"--port={port}"),
        *(f"--dtype={NUMBERS[setting.data_type]}", f"--max-model-len={setting.tokens}", *rows),
        *("--no-enable-prefix-caching", "--generation-config=vllm", "--disable-uvicorn-access-log"),
    ]


def _ctranslate2(checkpoint: Path, setting: Setting, port: int) -> list[str]:
    rows = [f"--rows={setting.clients}"] if setting.clients else []
    return [
        *(sys.executable, "-m", batcher.__name__, str(checkpoint), f"--port={port}", *rows),
        *(f"--device={setting.device}", f"--number={NUMBERS[setting.data_type]}"),
    ]


COMMANDS: Mapping[str, Callable[[Path, Setting, int], list[str]]] = {
    "vLLM": _vllm,
    "CTranslate2": _ctranslate2,
}


def prepare(name: str, checkpoint: Path) -> None:
    """Write what the engine `name` needs beside a checkpoint: a tokenizer, and what CTranslate2 converts."""
    engine.write_tokenizer(checkpoint)
    peers.prepare(name, checkpoint)


@contextlib.contextmanager
def started(name: str, checkpoint: Path, setting: Setting, log: Path) -> Iterator[Life[Completions]]:
    """Start a server of the engine `name`, and end it with the block; SmokeError if it does not get ready."""
    (port,) = server.free_ports(1)
    argv = COMMANDS[name](checkpoint, setting, port)
    with log.open("wb") as sink:
        start = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=peers.ROOT,
            env={**os.environ, **server.seeing(1), **peers.ENVIRONMENT},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            server.wait(process, f"http://127.0.0.1:{port}/health", log, peers.READY_SECONDS)
            ready = time.monotonic() - start
            package = engine.ENGINES[name].package
            settings = {"version": version(package), "command": " ".join(argv[2:])}
            yield Life(Completions(f"127.0.0.1:{port}", setting.streamed, MODEL), ready, settings=settings)
            if process.poll() is not None:
                raise SmokeError(f"{name} has ended with code {process.returncode}", where=str(log))
        finally:
            server.end(process)
            with contextlib.suppress(ProcessLookupError):  # what it started, and did not end
                os.killpg(process.pid, signal.SIGKILL)

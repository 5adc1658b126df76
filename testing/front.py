"""The OpenAI front as a process of its own, and a model that answers slowly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from testing import ROOT, needs
from testing.serving import free_ports
from testing.waiting import until_up

NAME = "tiny"
END_ID = 257
# Milliseconds between two tokens, and the token that all of them are.
PAUSE_MS, LETTER = 100, ord("z")
_CONFIG = """\
name: "fastertransformer"
backend: "python"
max_batch_size: 1
model_transaction_policy { decoupled: True }
input [
  { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "input_lengths" data_type: TYPE_UINT32 dims: [ 1 ] },
  { name: "request_output_len" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "runtime_top_k" data_type: TYPE_UINT32 dims: [ 1 ] optional: true }
]
output [
  { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] },
  { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }
]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
_CODE = f"""\
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.answer(request, request.get_response_sender())

    def answer(self, request, sender):
        get = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
        prompt, length = get("input_ids").reshape(-1).tolist(), int(get("request_output_len").item())
        for number in range(1, length + 1):
            time.sleep({PAUSE_MS} / 1000)
            ids = prompt + [{LETTER}] * number + [0] * (length - number)
            sender.send(pb_utils.InferenceResponse([
                pb_utils.Tensor("output_ids", np.array([[ids]], np.uint32)),
                pb_utils.Tensor("sequence_length", np.array([[len(prompt) + number]], np.uint32)),
            ]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@dataclass(frozen=True)
class Front:
    """A running front: its address as a URL, the file with its log, and its process."""

    url: str
    log: Path
    pid: int

    def post(self, path: str, **body: object) -> requests.Response:
        """Send a request for the model NAME."""
        return requests.post(f"{self.url}/v1/{path}", json={"model": NAME, **body}, timeout=60)


def slow_model(folder: Path) -> Path:
    """Write a model repository whose model computes one request at a time, a token every PAUSE_MS."""
    version = folder / "fastertransformer" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(_CONFIG)
    (version / "model.py").write_text(_CODE)
    return folder


@contextmanager
def front(triton: str, tokenizer: Path, log: Path, *options: str, **environment: str) -> Iterator[Front]:
    """Run the front for a server's gRPC endpoint; end it with SIGTERM."""
    for package in ("starlette", "tokenizers", "uvicorn"):
        needs.package(package)
    port = free_ports().http
    arguments = ["--triton", triton, "--tokenizer", str(tokenizer), "--name", NAME, "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ftserve.front", *arguments, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            until_up(process, lambda: "Uvicorn running" in log.read_text(), log)
            yield Front(f"http://127.0.0.1:{port}", log, process.pid)
        finally:
            process.terminate()
            assert process.wait(60) in (0, -15), log.read_text()

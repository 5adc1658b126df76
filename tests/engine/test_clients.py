"""What asks a running server: the probes of an orchestrator, and clients through the recipe's proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ftbuild.cli import demo
from ftbuild.client import probe, server_container
from ftbuild.client.server_container import Server
from ftbuild.plan import Plan
from ftbuild.serving import health
from testing.serving import answer

ENSEMBLE = """\
name: "ensemble"
platform: "ensemble"
max_batch_size: 8
input [
  { name: "INPUT_0" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "INPUT_1" data_type: TYPE_UINT32 dims: [ -1 ] }
]
output [ { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] } ]
ensemble_scheduling { step [
  { model_name: "preprocessing" model_version: -1
    input_map { key: "QUERY" value: "INPUT_0" } input_map { key: "REQUEST_OUTPUT_LEN" value: "INPUT_1" }
    output_map { key: "IDS" value: "ids" } output_map { key: "LENGTHS" value: "lengths" }
    output_map { key: "WANTED" value: "wanted" } },
  { model_name: "fastertransformer" model_version: -1
    input_map { key: "input_ids" value: "ids" } input_map { key: "input_lengths" value: "lengths" }
    input_map { key: "request_output_len" value: "wanted" }
    output_map { key: "output_ids" value: "output_ids" } }
] }
"""
PREPROCESSING = """\
name: "preprocessing"
backend: "python"
max_batch_size: 8
input [
  { name: "QUERY" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_UINT32 dims: [ -1 ] }
]
output [
  { name: "IDS" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "LENGTHS" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WANTED" data_type: TYPE_UINT32 dims: [ -1 ] }
]
"""
# It waits while there is one file, and fails while there is another.
WAITING, FAILING = "/tmp/waiting", "/tmp/failing"
MODEL = f"""\
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        while os.path.exists({WAITING!r}):
            time.sleep(0.02)
        if os.path.exists({FAILING!r}):
            raise ValueError("no tokenizer today")
        one = np.array([[1]], np.uint32)
        tensors = [pb_utils.Tensor(name, one) for name in ("IDS", "LENGTHS", "WANTED")]
        return [pb_utils.InferenceResponse(tensors) for _ in requests]
"""


@pytest.fixture(scope="module")
def server(built: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an ensemble that can be held up, and with a model that streams."""
    models = demo.model_repository(tmp_path_factory.mktemp("served") / "models")
    bare = (models / "fastertransformer/config.pbtxt").read_text()
    texts = {
        "ensemble/config.pbtxt": ENSEMBLE,
        "ensemble/1/.keep": "",
        "preprocessing/config.pbtxt": PREPROCESSING,
        "preprocessing/1/model.py": MODEL,
        "streamed/config.pbtxt": bare.replace('name: "fastertransformer"', 'name: "streamed"', 1)
        + "model_transaction_policy { decoupled: True }\n",
        "streamed/1/.keep": "",
    }
    for path, text in texts.items():
        (models / path).parent.mkdir(parents=True, exist_ok=True)
        (models / path).write_text(text)
    options = ["--model-control-mode=explicit", "--load-model=*"]
    with server_container.serve(built.tag("runtime"), models, options=options) as running:
        yield running


@contextmanager
def file(server: Server, path: str) -> Iterator[None]:
    inside = server.container.get_wrapped_container()
    inside.exec_run(["touch", path])
    try:
        yield
    finally:
        inside.exec_run(["rm", path])


def asked(server: Server, kind: str = "ready", seconds: float = 20.0) -> list[str]:
    host, http = server.http.split(":")
    return probe.answering(kind, probe.Server(host, int(http), int(server.grpc.split(":")[1]), seconds))


def test_the_probe_runs_in_the_image_and_asks_ensembles_and_streams(server: Server) -> None:
    argv = ["python3", "-c", health.SCRIPT, *health.ready()]
    code, said = server.container.get_wrapped_container().exec_run(argv)
    assert (code, said) == (0, b"answers: ensemble streamed\n")
    assert asked(server, "alive") == ["ensemble", "streamed"]


def test_a_model_that_fails_is_no_answer(server: Server) -> None:
    with (
        file(server, FAILING),
        pytest.raises(probe.Failed, match=r"ensemble answers 500.*no tokenizer today"),
    ):
        asked(server)
    argv = ["python3", "-c", health.SCRIPT, *health.ready(), "8000", "9"]
    code, said = server.container.get_wrapped_container().exec_run(argv)
    assert (code, b"no answer: ConnectionRefusedError" in said) == (1, True)


def test_silence_is_no_answer_unless_others_get_theirs(server: Server) -> None:
    ended = threading.Event()

    def others() -> None:
        while not ended.wait(0.1):
            answer(server.http)

    with file(server, WAITING):
        with pytest.raises(probe.Failed, match="ensemble answered nobody within 1 s"):
            asked(server, seconds=1)
        thread = threading.Thread(target=others)
        thread.start()
        try:
            assert asked(server, seconds=1) == ["ensemble", "streamed"]
        finally:
            ended.set()
            thread.join()
    assert asked(server) == ["ensemble", "streamed"]


def test_a_server_that_stands_still_is_no_answer(server: Server) -> None:
    inside = server.container.get_wrapped_container()
    inside.pause()
    try:
        for kind in ("ready", "alive"):
            with pytest.raises(probe.Failed, match=r"no answer within 0\.2 s"):
                asked(server, kind, 0.2)
    finally:
        inside.unpause()
    assert asked(server)

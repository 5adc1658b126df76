"""The sample stack as a server: a model repository, a deployment under a name of its own, right answers."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ftbuild.cli import demo
from ftbuild.client import probe
from ftbuild.client.connection import Client, Protocol
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.models.config_pbtxt import MODEL
from ftbuild.plan import Plan
from ftserve import deployment, image_choice, requirements
from ftserve.deployment import Deployment, Options, Ports
from ftserve.image_choice import Image, ImageChoice
from testing.sample import SAMPLE

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

RIGHT = [*demo.PROMPT, *demo.ANSWER]
_ENSEMBLE = """\
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
_PREPROCESSING = """\
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
# Ends a server in its container, where the image may lack the programs for it.
KILL = """
for process in /proc/[0-9]*; do
    if [ "$(cat $process/comm)" = tritonserver ]; then kill -9 ${process#/proc/}; fi
done
"""
# It waits while there is one file, and fails while there is another.
WAITING, FAILING = "/tmp/waiting", "/tmp/failing"
_CODE = f"""\
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


def free_ports() -> Ports:
    """Return ports of this machine that nobody listens on."""
    sockets = [socket.socket() for _ in range(3)]
    for free in sockets:
        free.bind(("", 0))
    ports = Ports(*(free.getsockname()[1] for free in sockets))
    for free in sockets:
        free.close()
    return ports


def open_to_all(folder: Path) -> None:
    """Let everybody read a folder, whatever the umask."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def sample_models(tmp_path: Path) -> Path:
    """A model repository that everybody may read, in a folder that only we may enter: a mount bypasses it."""
    folder = demo.model_repository(tmp_path / "models")
    open_to_all(folder)
    assert tmp_path.stat().st_mode & 0o077 == 0
    return folder


@pytest.fixture
def sample_image(client: docker.DockerClient, built: Plan) -> Image:
    found, access = image_choice.find(client, loader.load(SAMPLE), ImageChoice(sm="80", triton="22.12"), None)
    assert access is None
    assert found.name == built.tag("runtime", moving=True)
    return found


@pytest.fixture
def wanted(client: docker.DockerClient, sample_image: Image, sample_models: Path) -> Iterator[Deployment]:
    """How the sample is served, under a name of its own; whatever is left of it is removed."""
    options = Options(sample_models, ports=free_ports(), name=f"ftbuild-test-{uuid.uuid4().hex[:8]}")
    yield deployment.decide(options, requirements.read(sample_models), sample_image, "cpu")
    for left in client.containers.list(all=True, filters={"name": options.name}, ignore_removed=True):
        left.remove(force=True)


def answer(address: int | str, protocol: Protocol = "http") -> list[int]:
    """Return the tokens that a server at this address, or port of this machine, answers; see RIGHT."""
    client = Client(f"localhost:{address}" if isinstance(address, int) else address, protocol)
    values = {
        "input_ids": demo.PROMPT,
        "input_lengths": (len(demo.PROMPT),),
        "request_output_len": (len(demo.ANSWER),),
    }
    outputs = client.infer(MODEL, {name: np.array([data], np.uint32) for name, data in values.items()})
    client.close()
    tokens: list[int] = outputs["output_ids"].ravel().tolist()
    return tokens


def probed(server: Server, kind: str = "ready", seconds: float = 20.0) -> list[str]:
    """Return the models of a server that answer the probe; probe.Failed when one does not."""
    host, http = server.http.split(":")
    return probe.answering(kind, probe.Server(host, int(http), int(server.grpc.split(":")[1]), seconds))


def add_models(models: Path) -> None:
    """Add a model that streams, and an ensemble that the files WAITING and FAILING in a container hold up."""
    bare = (models / MODEL / "config.pbtxt").read_text()
    texts = {
        "ensemble/config.pbtxt": _ENSEMBLE,
        "ensemble/1/.keep": "",
        "preprocessing/config.pbtxt": _PREPROCESSING,
        "preprocessing/1/model.py": _CODE,
        "streamed/config.pbtxt": bare.replace(f'name: "{MODEL}"', 'name: "streamed"', 1)
        + "model_transaction_policy { decoupled: True }\n",
        "streamed/1/.keep": "",
    }
    for path, text in texts.items():
        (models / path).parent.mkdir(parents=True, exist_ok=True)
        (models / path).write_text(text)


def inside(container: Container, *argv: str) -> str:
    """Return what a command in a container says, whatever its exit code."""
    said = container.exec_run(list(argv)).output
    assert isinstance(said, bytes)
    return said.decode()


def expect_strict(running: Container, wanted: Deployment) -> None:
    """Expect that the server writes to memory only, has no rights to gain, and finds its limits."""
    for path in ("/here", "/models/here", "/opt/tritonserver/here", "/var/tmp/here"):
        assert "Read-only file system" in inside(running, "touch", path)
    assert inside(running, "touch", "/tmp/here", "/dev/shm/here") == ""
    mounts = [line.split() for line in inside(running, "cat", "/proc/mounts").splitlines()]
    (tmp,) = (options.split(",") for _, place, _, options, *_ in mounts if place == deployment.TMP)
    assert {"nosuid", "nodev", "noexec", f"size={deployment.TMP_SIZE // 1024}k"} <= set(tmp)
    status = inside(running, "cat", "/proc/1/status")
    assert re.search(r"^NoNewPrivs:\s*1$", status, re.M)
    assert re.findall(r"^Cap(?:Eff|Bnd):\s*(\w+)$", status, re.M) == ["0" * 16] * 2
    limits = running.attrs["HostConfig"]
    assert (limits["PidsLimit"], limits["Memory"]) == (deployment.PROCESSES, wanted.memory)

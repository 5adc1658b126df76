"""A real server's queue before requests in flight: limit, priorities, time-outs, and what metrics tell."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from ftbuild.client import server_container
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.host.paths import cache_folder
from ftbuild.plan import Plan
from testing import ROOT, compiled_server, in_flight, needs
from testing.waiting import until
from tests.upstream.conftest import unreachable

if TYPE_CHECKING:
    import docker

# Of the backend's batch, and seconds of a step.
SLOTS, STEP = 4, 0.01
# Tokens of those that are computed meanwhile: three seconds, also on a busy machine enough to ask in.
RUNNING = 300
LIMIT, TIMEOUT = 8, 8.0
FULL, LATE = "Exceeds maximum queue size", "Request timeout expired"
CONFIG = f"""\
name: "slow"
backend: "slow"
max_batch_size: 1024
input [
  {{ name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] allow_ragged_batch: true }},
  {{ name: "input_lengths" data_type: TYPE_UINT32 dims: [ 1 ] reshape: {{ shape: [ ] }} }},
  {{ name: "request_output_len" data_type: TYPE_UINT32 dims: [ -1 ] }}
]
output [
  {{ name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] }},
  {{ name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{
  max_queue_delay_microseconds: 2000
  priority_levels: 2 default_priority_level: 2
  default_queue_policy {{
    max_queue_size: {LIMIT}
    default_timeout_microseconds: {int(TIMEOUT * 1e6)}
    allow_timeout_override: true
  }}
}}
"""


@pytest.fixture(scope="module")
def models(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the backend, and return the repository with its model."""
    config, folder = loader.load(ROOT / "buildcfg"), tmp_path_factory.mktemp("in_flight")
    for name in ("backend", "core"):
        if why := unreachable(config.sources.repositories[name].url):
            pytest.skip(f"{name} cannot be reached: {why}")
    includes = [f"-I{each}" for each in in_flight.headers(config, cache_folder(), folder)]
    source, model = Path(__file__).parent / "programs/in_flight_backend.cc", folder / "models/slow"
    (model / "1").mkdir(parents=True)
    (model / "1" / "none").touch()
    (model / "config.pbtxt").write_text(CONFIG)
    library = model / "libtriton_slow.so"
    options = ["-std=c++14", "-O1", "-w", "-shared", "-fPIC", "-pthread"]
    subprocess.run([needs.program("g++"), *options, *includes, str(source), "-o", str(library)], check=True)
    # A server looks for the functions of a batching strategy by this name.
    shutil.copy(library, model / "batchstrategy.so")
    return model.parent


def serving(image: str, models: Path) -> AbstractContextManager[Server]:
    options = ["--model-control-mode=explicit", "--load-model=slow"]
    return server_container.serve(image, models, options=options)


@pytest.fixture(scope="module")
def server(built: Plan, models: Path) -> Iterator[Server]:
    with serving(built.tag("runtime"), models) as running:
        yield running


class Asked:
    """Requests of one row each, and how each of them ended, in that order."""

    def __init__(self, server: Server) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(server.grpc)
        self._changed = threading.Condition()
        self._begun = 0
        self.ended: list[tuple[str, str]] = []

    def __call__(self, name: str, tokens: int, **options: Any) -> None:
        """Ask for so many tokens."""
        self._begun += 1

        def end(result: object, error: InferenceServerException | None) -> None:
            with self._changed:
                self.ended.append((name, error.message() if error else ""))
                self._changed.notify_all()

        self._client.async_infer("slow", _inputs(tokens), end, **options)

    def wait(self, number: int | None = None) -> list[tuple[str, str]]:
        """Return how they ended, once that many have, else all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ended) >= (number or self._begun), 60)
            return list(self.ended)


def _inputs(tokens: int) -> list[Any]:
    values = {"input_ids": [1, 2, 3], "input_lengths": [3], "request_output_len": [tokens]}
    inputs = []
    for name, row in values.items():
        inputs.append(tritonclient.grpc.InferInput(name, [1, len(row)], "UINT32"))
        inputs[-1].set_data_from_numpy(np.array([row], np.uint32))
    return inputs


def metrics(server: Server) -> dict[str, float]:
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("ft_inflight_")]
    return {name.partition("{")[0]: float(value) for name, value in lines}


def _is_told(server: Server, name: str, expected: bool) -> bool:
    return (name in metrics(server)) == expected


@pytest.fixture
def asked(server: Server) -> Asked:
    """Ask the server of all tests, whose slots are all taken for some seconds."""
    return busy(server)


def busy(server: Server) -> Asked:
    """Ask a server whose slots are all taken, for some seconds, and whose queue is empty."""
    found = Asked(server)
    for _ in range(SLOTS):
        found("running", RUNNING)
    assert until(lambda: metrics(server)["ft_inflight_slots_used"] == SLOTS)
    return found


def test_what_finds_a_full_queue_is_refused_at_once_and_the_rest_answered(
    server: Server, asked: Asked
) -> None:
    for number in range(40):
        asked(str(number), 10)
    asked.wait(1)  # and no longer, as a busy machine may compute those in the slots meanwhile
    body = {
        "inputs": [
            {"name": each.name(), "shape": list(each.shape()), "datatype": "UINT32", "data": data}
            for each, data in zip(_inputs(1), ([1, 2, 3], [3], [1]), strict=True)
        ]
    }
    over_http = requests.post(f"{server.url}/v2/models/slow/infer", json=body, timeout=60)
    assert (over_http.status_code, FULL in over_http.text) == (503, True)
    assert {error.rpartition("] ")[2] for _, error in asked.wait(20)} <= {FULL}
    ended = Counter(error.rpartition("] ")[2] for _, error in asked.wait())
    # In the queue, and the few that the backend takes before slots are free.
    assert set(ended) == {"", FULL}
    assert SLOTS + LIMIT <= ended[""] <= SLOTS + LIMIT + 4


def test_a_higher_priority_starts_before_all_that_wait(asked: Asked) -> None:
    for number in range(LIMIT - 1):
        asked(f"low {number}", 50)
    asked("high", 10, priority=1)
    ended = asked.wait()
    assert ("high", "") in ended
    order = [name for name, _ in ended]
    # One or two had left the queue before it came.
    assert order.index("high") < order.index("low 3")


def test_who_waits_too_long_is_refused(asked: Asked) -> None:
    """A request's own time-out counts, and what has started has none."""
    for number in range(SLOTS):
        asked(f"long {number}", int(1.5 * TIMEOUT / STEP))
    asked("hasty", 10, timeout=100_000)
    asked("patient", 10)
    ended = dict(asked.wait())
    assert ended["hasty"] == LATE
    assert ended["patient"] in ("", LATE)
    assert not any(error for name, error in ended.items() if name.startswith(("long", "running")))


def test_metrics_are_those_of_a_loaded_model(server: Server, asked: Asked) -> None:
    assert until(lambda: metrics(server)["ft_inflight_running"] == SLOTS)
    found = metrics(server)
    assert (found["ft_inflight_slots"], found["ft_inflight_cache_tokens"]) == (SLOTS, SLOTS * 2048)
    asked.wait()
    assert until(lambda: metrics(server)["ft_inflight_slots_used"] == 0)
    assert metrics(server)["ft_inflight_generated_tokens_total"] >= SLOTS * RUNNING
    for action, there in (("unload", False), ("load", True)):
        control(server, action)
        assert until(partial(_is_told, server, "ft_inflight_slots", there))
    assert metrics(server)["ft_inflight_slots"] == SLOTS


@pytest.fixture
def spoiled(built: Plan, models: Path) -> Iterator[Server]:
    """A server for one test alone.

    Server 2.51 keeps a model that is unloaded after gRPC calls were cancelled while they waited
    (docs/security.md); no other test may find it there.
    """
    with serving(built.tag("runtime"), models) as running:
        yield running


@pytest.fixture
def from_sources(client: docker.DockerClient, models: Path) -> Iterator[Server]:
    """The server of 26.06, compiled from its sources."""
    with serving(compiled_server.image(client), models) as running:
        yield running


def many_leave(server: Server) -> None:
    """Let clients give up while they wait, while they are computed, and about when they are answered."""
    asked = busy(server)
    for number in range(200):
        asked(f"left {number}", number % 30 + 1, client_timeout=0.001 * (number % 50 + 1))
    asked.wait()
    assert until(lambda: metrics(server)["ft_inflight_slots_used"] == 0)
    assert metrics(server)["ft_inflight_waiting"] == 0


def control(server: Server, action: str) -> None:
    """Load or unload the model."""
    done = requests.post(f"{server.url}/v2/repository/models/slow/{action}", timeout=60)
    assert done.status_code == 200, done.text


def test_nothing_waits_or_runs_for_who_left(spoiled: Server) -> None:
    many_leave(spoiled)
    control(spoiled, "unload")
    control(spoiled, "load")
    ready = f"{spoiled.url}/v2/models/slow/ready"
    assert until(lambda: requests.get(ready, timeout=60).status_code == 200)


def test_a_model_that_clients_have_left_goes_when_it_is_unloaded(from_sources: Server) -> None:
    many_leave(from_sources)
    control(from_sources, "unload")
    assert until(partial(_is_told, from_sources, "ft_inflight_slots", False))
    control(from_sources, "load")
    assert metrics(from_sources)["ft_inflight_slots"] == SLOTS

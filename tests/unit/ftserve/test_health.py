"""Who asks a server for tokens, how, and what silence does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild.client import probe
from ftbuild.errors import ConfigError
from ftbuild.text.units import GIB, MIB
from ftserve import deployment, health, requirements
from ftserve.deployment import Deployment, Options, Ports
from ftserve.image_choice import Image
from ftserve.requirements import Needs
from ftserve.targets import apptainer, compose, kubernetes
from testing.tokens import running
from tests.unit.ftserve.test_deployment import pbtxt, repository  # noqa: F401  a fixture

DEPLOYMENT = Deployment("gpt", "triton_with_ft:22.12-sm80", Path("/srv/models"), (0,), Ports(), GIB)


def probes(wanted: Deployment) -> dict[str, Any]:
    pods, *_ = yaml.safe_load_all(kubernetes.render(wanted))
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    return {kind: container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}


def test_composes_health_check_is_the_probe_as_it_stands_in_the_file() -> None:
    text = compose.render(DEPLOYMENT)
    check = yaml.safe_load(text)["services"][compose.SERVICE]["healthcheck"]
    assert check["test"] == ["CMD", "python3", "-c", health.SCRIPT, "ready", "30"]
    # Long enough for the probe to say by itself that nobody was answered.
    assert (check["timeout"], check["interval"], check["retries"]) == ("40s", "10s", 3)
    lines = [line.strip() for line in text.splitlines()]
    assert all(line.strip() in lines for line in health.SCRIPT.splitlines())


def test_a_pod_is_asked_for_tokens() -> None:
    pods, _, probe = yaml.safe_load_all(kubernetes.render(DEPLOYMENT))
    pod = pods["spec"]["template"]["spec"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "probe")
    assert volume["configMap"]["name"] == probe["metadata"]["name"]
    assert probe["data"] == {"probe.py": health.SCRIPT}
    asked = probes(DEPLOYMENT)
    script = ["python3", "/probe/probe.py"]
    assert {kind: found["exec"]["command"] for kind, found in asked.items()} == {
        "startup": [*script, "ready", "30"],
        "readiness": [*script, "ready", "30"],
        "liveness": [*script, "alive", "220"],
    }
    # The probe itself gives up first.
    assert {kind: found["timeoutSeconds"] for kind, found in asked.items()} == {
        "startup": 40,
        "readiness": 40,
        "liveness": 230,
    }


@pytest.mark.parametrize("longest", [1, 30, 600, 3601])
def test_a_busy_pod_is_not_restarted_before_its_longest_request_must_have_ended(
    longest: int,
) -> None:
    liveness = probes(replace(DEPLOYMENT, request_seconds=longest))["liveness"]
    silence = int(liveness["exec"]["command"][-1]) * liveness["failureThreshold"]
    assert longest < silence < longest + 120


def test_a_pod_whose_requests_may_take_forever_is_not_restarted_for_silence() -> None:
    liveness = probes(replace(DEPLOYMENT, request_seconds=None))["liveness"]
    assert liveness["httpGet"] == {"path": "/v2/health/live", "port": "http"}


def test_a_job_whose_requests_may_take_forever_is_not_killed_for_silence() -> None:
    assert "alive 220" in apptainer.render(DEPLOYMENT)[apptainer.BATCH]
    assert "alive" not in apptainer.render(replace(DEPLOYMENT, request_seconds=None))[apptainer.BATCH]


@pytest.mark.parametrize(("written", "longest"), [({}, 600), ({"max_request_seconds": "30"}, 30)])
def test_a_repository_says_how_long_a_request_may_take(
    repository: Callable[..., Path],  # noqa: F811
    written: dict[str, str],
    longest: int,
) -> None:
    assert requirements.read(repository(pbtxt(**written), 1)).request_seconds == longest


def test_a_repository_without_a_limit_of_time_has_none(repository: Callable[..., Path]) -> None:  # noqa: F811
    folder = repository(pbtxt(max_request_seconds="0"), 1)
    assert requirements.read(folder).request_seconds is None
    (folder / "fastertransformer/config.pbtxt").write_text(pbtxt(max_request_seconds="1e3"))
    with pytest.raises(ConfigError, match="max_request_seconds is '1e3'"):
        requirements.read(folder)
    assert Needs().request_seconds == 600


def decided(needs: Needs, *gpus: int, memory: int | None = None) -> Deployment:
    options = Options(Path("/srv/models"), gpus or None, shared_memory=2 * GIB, memory=memory)
    return deployment.decide(options, needs, Image("x:1"), "gpu" if gpus else "cpu")


def test_the_memory_holds_weights_shared_memory_and_each_gpu() -> None:
    known = Needs(("fastertransformer",), size=12 * GIB + 1)
    assert decided(known, 0, 1).memory == (12 + 2 + 4 + 2 * 4) * GIB
    assert decided(known).memory == (12 + 2 + 4) * GIB
    assert decided(known, memory=5 * GIB).memory == 5 * GIB
    assert decided(Needs()).memory is None


def test_memory_that_shared_memory_uses_up_is_refused() -> None:
    with pytest.raises(ConfigError, match="3071 MiB of memory is too small: 2048 are shared") as caught:
        decided(Needs(), memory=3 * GIB - MIB)
    assert caught.value.hint == "--memory 3072m or more"


def test_a_repositorys_size_is_that_of_its_files(repository: Callable[..., Path]) -> None:  # noqa: F811
    folder = repository(pbtxt(), 1)
    before = requirements.read(folder).size
    (folder / "fastertransformer/1/1-gpu/weights.bin").write_bytes(bytes(5 * MIB))
    (folder / "fastertransformer/1/gone").symlink_to("nowhere")
    assert 0 <= requirements.read(folder).size - before - 5 * MIB < MIB


class Overloaded:
    """A server whose queue is full; each look at its statistics finds more requests answered, or refused."""

    def __init__(self, counted: str, words: str) -> None:
        self.counted, self.words, self.looks = counted, words, 0

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and JSON."""
        if path.endswith("/infer"):
            return 503, {"error": self.words}
        if path.endswith("/index"):
            return 200, [{"name": "fastertransformer"}]
        if path.endswith("/config"):
            tensors = [{"name": "input_ids", "data_type": "TYPE_UINT32", "dims": [-1]}]
            return 200, {"backend": "fastertransformer", "input": tensors}
        if path.endswith("/stats"):
            self.looks += 1
            counts = {kind: {"count": self.looks * (kind == self.counted)} for kind in ("success", "fail")}
            return 200, {"model_stats": [{"name": "fastertransformer", "inference_stats": counts}]}
        return 200, {}

    @contextmanager
    def serving(self, seconds: float) -> Iterator[probe.Server]:
        """Yield what the probe asks."""
        overloaded = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, found = overloaded.answer(self.path)
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815 (named by http.server)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        with running(server):
            yield probe.Server("127.0.0.1", server.server_port, 0, seconds)


@pytest.mark.parametrize("words", probe.OVERLOADED)
@pytest.mark.parametrize(("counted", "lives"), [("success", True), ("fail", False)])
def test_a_full_queue_is_no_failure_while_others_are_answered(
    words: str, counted: str, *, lives: bool
) -> None:
    """Refusals, which servers count as failed requests, are no answers."""
    overloaded = Overloaded(counted, f"[request id: <id_unknown>] {words}")
    with overloaded.serving(1.0) as server:
        if lives:
            assert probe.answering("alive", server) == ["fastertransformer"]
        else:
            with pytest.raises(probe.Failed, match="answered no request within 1 s"):
                probe.answering("alive", server)


def test_another_refusal_is_a_failure_at_once() -> None:
    with (
        Overloaded("success", "CUDA error").serving(60.0) as server,
        pytest.raises(probe.Failed, match=r"answers 503: .*CUDA error"),
    ):
        probe.answering("alive", server)

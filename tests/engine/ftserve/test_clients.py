"""What asks a running server: probes, and clients through the proxy of docs/security.md."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc
import trustme
from requests import RequestException, Response
from tritonclient.utils import InferenceServerException

from ftbuild.cli import demo
from ftbuild.client import probe, server_container
from ftbuild.client.server_container import Server
from ftbuild.errors import SmokeError
from ftbuild.plan import Plan
from ftbuild.text.units import GIB
from ftserve import health
from ftserve.deployment import Deployment, Ports
from ftserve.targets import docker as launch
from testing import proxies
from testing.proxies import Proxy
from testing.serving import FAILING, RIGHT, WAITING, add_models, answer, probed

if TYPE_CHECKING:
    import docker


@pytest.fixture(scope="module")
def server(built: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an ensemble that can be held up, and with a model that streams."""
    models = demo.model_repository(tmp_path_factory.mktemp("served") / "models")
    add_models(models)
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


def test_the_probe_runs_in_the_image_and_asks_ensembles_and_streams(server: Server) -> None:
    argv = ["python3", "-c", health.SCRIPT, *health.ready()]
    code, said = server.container.get_wrapped_container().exec_run(argv)
    assert (code, said) == (0, b"answers: ensemble streamed\n")
    assert probed(server, "alive") == ["ensemble", "streamed"]


def test_a_model_that_fails_is_no_answer(server: Server) -> None:
    with (
        file(server, FAILING),
        pytest.raises(probe.Failed, match=r"ensemble answers 500.*no tokenizer today"),
    ):
        probed(server)
    argv = ["python3", "-c", health.SCRIPT, *health.ready(), "8000", "9"]
    code, said = server.container.get_wrapped_container().exec_run(argv)
    assert code == 1
    assert b"no answer: ConnectionRefusedError" in said


def test_serving_is_refused_while_a_model_gives_no_token(
    client: docker.DockerClient, server: Server, built: Plan, tmp_path: Path
) -> None:
    host = server.http.partition(":")[0].replace("localhost", "127.0.0.1")
    http, rpc, metrics = (int(a.partition(":")[2]) for a in (server.http, server.grpc, server.metrics))
    wanted = Deployment("x", built.tag("runtime"), tmp_path, (), Ports(http, rpc, metrics, host), GIB)
    container = server.container.get_wrapped_container()
    assert launch.wait(client, container, wanted, print, seconds=20).startswith(f"http://{host}:")
    with file(server, FAILING), pytest.raises(SmokeError, match="generates no token: ensemble answers 500"):
        launch.wait(client, container, wanted, print, seconds=20)


def test_silence_is_no_answer_unless_others_get_theirs(server: Server) -> None:
    ended = threading.Event()

    def others() -> None:
        while not ended.wait(0.1):
            answer(server.http)

    with file(server, WAITING):
        with pytest.raises(probe.Failed, match="ensemble answered no request within 1 s"):
            probed(server, seconds=1)
        thread = threading.Thread(target=others)
        thread.start()
        try:
            assert probed(server, seconds=1) == ["ensemble", "streamed"]
        finally:
            ended.set()
            thread.join()
    assert probed(server) == ["ensemble", "streamed"]


def test_a_server_that_stands_still_is_no_answer(server: Server) -> None:
    inside = server.container.get_wrapped_container()
    inside.pause()
    try:
        for kind in ("ready", "alive"):
            with pytest.raises(probe.Failed, match=r"no answer within 0\.2 s"):
                probed(server, kind, 0.2)
    finally:
        inside.unpause()
    assert probed(server)


TOKEN = "5f0c" * 16
GIVEN = {"Authorization": f"Bearer {TOKEN}"}
INPUTS = {"input_ids": list(demo.PROMPT), "input_lengths": [3], "request_output_len": [4]}
QUESTION = {
    "inputs": [
        {"name": name, "datatype": "UINT32", "shape": [1, len(data)], "data": data}
        for name, data in INPUTS.items()
    ]
}
INFER = "/v2/models/fastertransformer/infer"


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The page's proxy with tokens."""
    text, _ = proxies.recipe()
    tokens = {"models.tokens": f'"Bearer {TOKEN}" ada;\n'}
    folder = tmp_path_factory.mktemp("proxy")
    with proxies.running(folder, text, server.http, server.grpc, tokens) as running:
        yield running


def tokens_of(response: Response) -> list[int]:
    assert response.status_code == 200, response.text
    (output,) = (found for found in response.json()["outputs"] if found["name"] == "output_ids")
    data: list[int] = output["data"]
    return data


def test_the_proxy_answers_who_has_a_token(proxy: Proxy) -> None:
    assert tokens_of(proxy.ask("POST", INFER, QUESTION, headers=GIVEN)) == RIGHT
    assert proxy.ask("GET", "/v2/health/ready", headers=GIVEN).status_code == 200
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}):
        assert proxy.ask("POST", INFER, QUESTION, headers=headers).status_code == 401
        assert proxy.ask("GET", "/v2/health/ready", headers=headers).status_code == 401
    with pytest.raises(RequestException):
        requests.get(f"http://{proxy.address}/v2/health/ready", timeout=60).raise_for_status()
    large = {
        "inputs": [{"name": "input_ids", "datatype": "UINT32", "shape": [1, 1], "data": [0] * 2_000_000}]
    }
    assert proxy.ask("POST", INFER, large, headers=GIVEN).status_code == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/fastertransformer/unload"),
        ("POST", "/v2/models/x/../../repository/models/fastertransformer/unload"),
        ("POST", "/v2/models/x/%2e%2e/%2e%2e/repository/models/fastertransformer/unload"),
        ("POST", "//v2/repository/models/fastertransformer/unload"),
        ("GET", "/v2/models/fastertransformer/config"),
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/logging"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("GET", "/metrics"),
        ("GET", "/"),
    ],
)
def test_the_proxy_refuses_everything_else_even_with_a_token(
    proxy: Proxy, server: Server, method: str, path: str
) -> None:
    assert proxy.ask(method, path, {}, headers=GIVEN).status_code == 403
    assert answer(server.http) == RIGHT


def test_the_proxy_passes_questions_over_grpc_and_nothing_else(proxy: Proxy) -> None:
    client = grpc.InferenceServerClient(proxy.address, ssl=True, root_certificates=str(proxy.ca))
    inputs = []
    for name, data in INPUTS.items():
        inputs.append(grpc.InferInput(name, [1, len(data)], "UINT32"))
        inputs[-1].set_data_from_numpy(np.array([data], np.uint32))
    given = {"authorization": f"Bearer {TOKEN}"}
    found = client.infer("fastertransformer", inputs, headers=given).as_numpy("output_ids")
    assert found is not None
    assert found.ravel().tolist() == RIGHT
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: arrived.put((result, error)), headers=given)
    client.async_stream_infer("streamed", inputs)
    result, error = arrived.get(timeout=120)
    assert error is None
    assert result.as_numpy("output_ids").ravel().tolist()[:3] == list(demo.PROMPT)
    client.stop_stream()
    with pytest.raises(InferenceServerException, match="401"):
        client.infer("fastertransformer", inputs)
    with pytest.raises(InferenceServerException, match="403"):
        client.unload_model("fastertransformer", headers=given)
    client.close()


def test_the_proxy_takes_certificates_in_place_of_tokens(server: Server, tmp_path: Path) -> None:
    text, lines = proxies.recipe()
    _, server_block = text.split("\nserver {\n")
    kept = [line for line in server_block.splitlines() if "401" not in line]
    own = trustme.CA()
    ada = own.issue_cert("ada@example.com").private_key_and_cert_chain_pem
    ada.write_to_path(tmp_path / "ada.pem")
    text = "\n".join(["server {", lines, *kept])
    clients = {"tls/clients.pem": own.cert_pem.bytes().decode()}
    with proxies.running(tmp_path / "nginx", text, server.http, server.grpc, clients) as proxy:
        assert tokens_of(proxy.ask("POST", INFER, QUESTION, cert=str(tmp_path / "ada.pem"))) == RIGHT
        assert proxy.ask("POST", INFER, QUESTION).status_code == 400
        assert (
            proxy.ask("POST", "/v2/repository/index", {}, cert=str(tmp_path / "ada.pem")).status_code == 403
        )

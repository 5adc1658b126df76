"""A running Triton server: start a container of an image, wait until it is ready, always end it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.errors import SmokeError

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

HTTP_PORT = "8000/tcp"
MODELS = "/models"
# `-n` counts hosts, not GPUs: one process serves all GPUs of one machine (BE v1.4 docs/gpt_guide.md).
COMMAND = ("mpirun", "-n", "1", "--allow-run-as-root", "tritonserver", f"--model-repository={MODELS}")


@dataclass(frozen=True)
class Server:
    """A server that answered its readiness endpoint."""

    url: str
    container: Container

    def infer(self, model: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """One request of the KServe v2 protocol; SmokeError with the server's words when it is refused."""
        import requests

        answer = requests.post(f"{self.url}/v2/models/{model}/infer", json=request, timeout=60)
        if answer.status_code != 200:
            raise SmokeError(f"{model} refused a request: {answer.text}", where=answer.url)
        body: dict[str, Any] = answer.json()
        return body


@contextlib.contextmanager
def serve(client: docker.DockerClient, image: str, models: Path, *, timeout: float = 120) -> Iterator[Server]:
    """A server of `image` on the model repository, on a free loopback port; removed at the end.

    `timeout` is in seconds. Raises SmokeError with the end of the server's log when it does not get ready.
    """
    container = client.containers.run(
        image,
        list(COMMAND),
        detach=True,
        ports={HTTP_PORT: ("127.0.0.1", 0)},
        volumes={str(models.resolve()): {"bind": MODELS, "mode": "ro"}},
        shm_size="1g",
        labels={"io.ftbuild.role": "server"},
    )
    try:
        yield Server(_await_ready(container, timeout), container)
    finally:
        container.remove(force=True, v=True)


def _await_ready(container: Container, timeout: float) -> str:
    import requests

    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        container.reload()
        if container.status == "exited":
            raise _not_ready("the server ended before it was ready", container)
        if ports := container.ports.get(HTTP_PORT):
            url = f"http://127.0.0.1:{ports[0]['HostPort']}"
            with contextlib.suppress(requests.RequestException):
                if requests.get(f"{url}/v2/health/ready", timeout=5).status_code == 200:
                    return url
        time.sleep(0.2)
    raise _not_ready(f"the server was not ready within {timeout:g} s", container)


def _not_ready(what: str, container: Container) -> SmokeError:
    log = container.logs(tail=30).decode("utf-8", "replace").strip()
    return SmokeError(f"{what}; its last lines:\n    " + "\n    ".join(log.splitlines()))

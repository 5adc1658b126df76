"""A running Triton server: start a container of an image, wait until it is ready, always end it."""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
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
    """A server of `image` on a free loopback port; removed at the end.

    The model repository is copied into the container, so that it need be readable neither to the image's
    user nor to the engine's machine: meant for repositories of a few megabytes. `timeout` is in seconds.
    Raises SmokeError with the server's own words when it does not get ready.
    """
    container = client.containers.create(
        image,
        list(COMMAND),
        ports={HTTP_PORT: ("127.0.0.1", 0)},
        shm_size="1g",
        labels={"io.ftbuild.role": "server"},
    )
    try:
        container.put_archive("/", _archive(models))
        container.start()
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


def _archive(models: Path) -> bytes:
    """`models` as a tar of root's files that everybody may read, below MODELS."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(models, MODELS.lstrip("/"), filter=_readable)
    return buffer.getvalue()


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o755 if entry.isdir() else 0o644
    entry.uid = entry.gid = 0
    return entry


def _not_ready(what: str, container: Container) -> SmokeError:
    """The error with the log's lines that tell of errors (glog's `E1121 ...`), or its last lines."""
    lines = container.logs().decode("utf-8", "replace").splitlines()
    causes = [line for line in lines if re.match(r"E\d{4} |error:|terminate called|\[FT\]\[ERROR\]", line)]
    return SmokeError("\n    ".join([f"{what}; it said:", *(causes or lines)[-15:]]))

"""A running Triton server: a container of an image, ready to be asked, always ended (testcontainers)."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.errors import SmokeError

if TYPE_CHECKING:
    from docker.types import DeviceRequest
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

HTTP, GRPC, METRICS = 8000, 8001, 8002
MODELS = "/models"
# `-n` counts hosts, not GPUs: one process serves all GPUs of one machine (BE v1.4 docs/gpt_guide.md).
# Left to itself, Open MPI binds a lone process with all its threads to one core (mpirun(1), --bind-to).
MPIRUN = ("mpirun", "-n", "1", "--bind-to", "none", "--allow-run-as-root")
COMMAND = (*MPIRUN, "tritonserver", f"--model-repository={MODELS}")
# NCCL and the Python backend share memory; CUDA pins host memory (Triton 22.12 README, "Run Triton").
SHARED_MEMORY = "1g"
LIMITS = {"memlock": -1, "stack": 64 * 2**20}
POLL_SECONDS = 0.2
SHOWN_LINES = 15
DIED = "the log's first error names the cause; `invoke verify` finds missing libraries"
# Lines that tell of errors: glog's `E1121 ...`, FasterTransformer's, NCCL's, the C++ runtime's, a shell's.
_CAUSE = re.compile(
    r"E\d{4} |error:|terminate called|\[FT\]\[ERROR\]|Failed, |.*(?:No such file|Segmentation fault)"
)


@dataclass(frozen=True)
class Server:
    """A server that answered its readiness endpoint; addresses are `host:port`."""

    http: str
    grpc: str
    metrics: str
    ready_seconds: float
    container: DockerContainer

    @property
    def url(self) -> str:
        """The address of its HTTP endpoint as a URL."""
        return f"http://{self.http}"

    def alive(self) -> bool:
        """Whether the server's process still runs."""
        self.container.reload()
        return self.container.status == "running"

    def said(self) -> str:
        """The last lines of its log that tell of errors, or its last lines."""
        return _said(self.container)


@contextlib.contextmanager
def serve(
    image: str,
    models: Path,
    *,
    devices: Sequence[DeviceRequest] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> Iterator[Server]:
    """A server of `image` on free ports with the model repository `models`; removed at the end.

    The model repository is copied into the container, so that it need be readable neither to the image's
    user nor to the engine's machine: meant for repositories of a few megabytes. `timeout` is in seconds.
    Raises SmokeError with the server's own words when it does not get ready.
    """
    from docker.errors import APIError

    name = daemon.throw_away_name()
    container = _container(image, models, devices, environment or {}).with_name(name)
    start = time.monotonic()
    try:
        try:
            container.waiting_for(_ready(timeout)).start()
        except APIError as refused:
            raise SmokeError(
                f"the engine cannot start a server: {refused.explanation}",
                where=image,
                hint="docker run the image by hand with the same options",
            ) from refused
        host = container.get_container_host_ip()
        http, grpc, metrics = (f"{host}:{container.get_exposed_port(port)}" for port in (HTTP, GRPC, METRICS))
        yield Server(http, grpc, metrics, time.monotonic() - start, container)
    finally:
        daemon.remove_container(container.get_docker_client().client, name)
        container.get_docker_client().client.close()


def _container(
    image: str, models: Path, devices: Sequence[DeviceRequest], environment: Mapping[str, str]
) -> DockerContainer:
    from docker.types import Ulimit
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Its reaper is an image on Docker Hub, which a closed network lacks; `serve` always ends what it started.
    testcontainers_config.ryuk_disabled = True
    limits = [Ulimit(name=name, soft=value, hard=value) for name, value in LIMITS.items()] if devices else []
    container = (
        DockerContainer(image)
        .with_command(list(COMMAND))
        .with_exposed_ports(HTTP, GRPC, METRICS)
        .with_envs(**environment)
        .with_kwargs(
            shm_size=SHARED_MEMORY,
            ulimits=limits,
            device_requests=list(devices),
            labels={"io.ftbuild.role": "server"},
        )
    )
    # Files bring their folders; an empty one (no model at all, a version without weights) gets a file for it.
    for path in sorted([models, *models.rglob("*")]):
        inside = f"{MODELS}/{path.relative_to(models)}"
        if path.is_file():
            container.with_copy_into_container(path, inside)
        elif not any(path.iterdir()):
            container.with_copy_into_container(b"", f"{inside}/.empty")
    return container


def _ready(timeout: float) -> WaitStrategy:
    """Waits for the server's own readiness endpoint; ends at once when the server has ended."""
    import requests
    from testcontainers.core.waiting_utils import WaitStrategy

    class Ready(WaitStrategy):
        def wait_until_ready(self, container: WaitStrategyTarget) -> None:
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                container.reload()
                if container.status == "exited":
                    raise _not_ready("the server ended before it was ready", container)
                with contextlib.suppress(requests.RequestException, ConnectionError):
                    address = f"{container.get_container_host_ip()}:{container.get_exposed_port(HTTP)}"
                    if requests.get(f"http://{address}/v2/health/ready", timeout=5).status_code == 200:
                        return
                time.sleep(POLL_SECONDS)
            raise _not_ready(f"the server was not ready within {timeout:g} s", container)

    return Ready()


def _not_ready(what: str, container: WaitStrategyTarget) -> SmokeError:
    return SmokeError(
        f"{what}; it said:\n    {_said(container)}",
        hint=DIED,
    )


def _said(container: WaitStrategyTarget) -> str:
    return log_excerpt(*container.get_logs())


def log_excerpt(*logs: bytes) -> str:
    """The last lines of a server's log that tell of errors, or its last lines; indented for a message."""
    lines = [line for log in logs for line in log.decode("utf-8", "replace").splitlines()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return "\n    ".join((causes or lines)[-SHOWN_LINES:])

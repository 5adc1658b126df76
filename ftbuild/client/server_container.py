"""A Triton server in a throw-away container (testcontainers)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import triton
from ftbuild.engine import daemon
from ftbuild.errors import SmokeError
from ftbuild.plan import LABELS

if TYPE_CHECKING:
    import docker
    from docker.types import DeviceRequest
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

_PORTS = (triton.HTTP_PORT, triton.GRPC_PORT, triton.METRICS_PORT)
LOOPBACK = "127.0.0.1"
READY_SECONDS = 120
_LOCAL = ("localhost", LOOPBACK, "::1")


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
        """Return whether the server's process still runs."""
        self.container.reload()
        return self.container.status == "running"

    def log_excerpt(self) -> str:
        """Return the last error lines of its log, or its last lines."""
        return triton.log_excerpt(*self.container.get_logs())

    def killed_and_restarted(self, *, timeout: float = READY_SECONDS) -> Server:
        """Kill the server as an engine does that restarts it; return it once it is ready, on other ports."""
        docker_container = self.container.get_wrapped_container()
        docker_container.kill()
        docker_container.wait()
        start = time.monotonic()
        docker_container.start()
        _ready(timeout).wait_until_ready(self.container)
        return _running(self.container, start)


@contextlib.contextmanager
def serve(
    image: str,
    models: Path,
    *,
    devices: Sequence[DeviceRequest] = (),
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    timeout: float = READY_SECONDS,
) -> Iterator[Server]:
    """Run a server of `image` on free ports with the model repository `models`; remove it at the end.

    It listens on the loopback address where the engine is on this machine, since it has no authentication.
    The model repository is copied into the container, so that neither the image's user nor the engine's
    machine must be able to read it: meant for repositories of a few megabytes. `options` follow the server's
    command. `timeout` is in seconds. Raises SmokeError with an excerpt of the log when the server does not
    get ready.
    """
    from docker.errors import APIError

    name = daemon.throw_away_name()
    container = _container(image, models, devices, environment or {}, options).with_name(name)
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
        yield _running(container, start)
    finally:
        daemon.remove_container(container.get_docker_client().client, name)
        container.get_docker_client().client.close()


def _command(client: docker.DockerClient, image: str) -> tuple[str, ...]:
    """Return the command by which an image is served, which depends on the server that its label names."""
    server_image = daemon.image(client, image)
    return triton.command(server_image.labels.get(f"{LABELS}.server") if server_image else None)


def _running(container: DockerContainer, start: float) -> Server:
    """Return a container whose server is ready, and was started at this moment of the monotonic clock."""
    host = LOOPBACK if _is_here(container) else container.get_container_host_ip()
    http, grpc, metrics = (f"{host}:{container.get_exposed_port(port)}" for port in _PORTS)
    return Server(http, grpc, metrics, time.monotonic() - start, container)


def _container(
    image: str,
    models: Path,
    devices: Sequence[DeviceRequest],
    environment: Mapping[str, str],
    options: Sequence[str],
) -> DockerContainer:
    from docker.types import Ulimit
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Its reaper is an image on Docker Hub, which a closed network lacks; `serve` always ends what it started.
    testcontainers_config.ryuk_disabled = True
    limits = (
        [Ulimit(name=name, soft=value, hard=value) for name, value in triton.LIMITS.items()]
        if devices
        else []
    )
    # By itself the SDK waits a minute, which a busy disk takes to remove a container.
    container = DockerContainer(image, docker_client_kw={"timeout": daemon.WORK_SECONDS})
    command = _command(container.get_docker_client().client, image)
    container = (
        container.with_command([*command, *options])
        .with_exposed_ports(*_PORTS)
        .with_envs(**environment)
        .with_kwargs(
            shm_size=triton.SHARED_MEMORY,
            ulimits=limits,
            device_requests=list(devices),
            labels=daemon.throw_away_labels("server"),
        )
    )
    if _is_here(container):
        container.ports = {f"{port}/tcp": (LOOPBACK, None) for port in _PORTS}  # type: ignore[misc]
    # Files bring their folders; an empty one (no model at all, a version without weights) gets a file for it.
    for path in sorted([models, *models.rglob("*")]):
        inside = f"{triton.MODELS}/{path.relative_to(models)}"
        if path.is_file():
            container.with_copy_into_container(path, inside)
        elif not any(path.iterdir()):
            container.with_copy_into_container(b"", f"{inside}/.empty")
    return container


def _is_here(container: DockerContainer) -> bool:
    """Return whether published ports are those of this machine; not in a container beside the server's."""
    from testcontainers.core.config import ConnectionMode

    client = container.get_docker_client()
    return client.get_connection_mode() is ConnectionMode.docker_host and client.host() in _LOCAL


def _ready(timeout: float) -> WaitStrategy:
    """Wait for the server's own readiness endpoint; fail at once when the server has ended."""
    import requests
    from testcontainers.core.waiting_utils import WaitStrategy

    class Ready(WaitStrategy):
        def wait_until_ready(self, container: WaitStrategyTarget) -> None:
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                container.reload()
                if container.status == "exited":
                    raise _not_ready("the server ended before it was ready", container)
                with contextlib.suppress(requests.RequestException, ConnectionError, TimeoutError):
                    address = (
                        f"{container.get_container_host_ip()}:{container.get_exposed_port(triton.HTTP_PORT)}"
                    )
                    if requests.get(f"http://{address}{triton.READY}", timeout=5).status_code == 200:
                        return
                time.sleep(triton.POLL_SECONDS)
            raise _not_ready(f"the server was not ready within {timeout:g} s", container)

    return Ready()


def _not_ready(what: str, container: WaitStrategyTarget) -> SmokeError:
    return SmokeError(
        f"{what}; its log:\n    {triton.log_excerpt(*container.get_logs())}", hint=triton.DIED_HINT
    )

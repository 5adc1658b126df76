"""Deployments as containers of this machine's engine: start, wait, show, follow, stop.

The engine mounts the model repository, so both must be on the same machine.
"""

from __future__ import annotations

import contextlib
import errno
import shlex
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ftbuild import triton
from ftbuild.client import probe
from ftbuild.engine import gpu
from ftbuild.errors import ConfigError, HostError, SmokeError
from ftbuild.host import signals
from ftbuild.plan import LABELS
from ftbuild.text import tables
from ftbuild.text.reporter import Pace, Reporter
from ftserve import health
from ftserve.deployment import PROCESSES, Deployment
from ftserve.image_choice import Image
from ftserve.requirements import unreadable
from ftserve.targets import front_container
from ftserve.targets.confined import Confined

if TYPE_CHECKING:
    import docker
    import requests
    from docker.models.containers import Container

ROLE = {f"{LABELS}.role": "serve"}
READY_SECONDS = 900
STOP_SECONDS = 30
# After Ctrl-C, which ends a command within seconds; SIGTERM and --stop let it finish its answers.
HURRIED_SECONDS = 1
_OUT_OF_MEMORY = "the kernel killed it: the memory ran out, --memory gives it more"


def command_line(deployment: Deployment) -> str:
    """Return what `start` does as a `docker run` to paste into a shell."""
    own = []
    if deployment.gpus and deployment.access == "cdi":
        own += [f"--device=nvidia.com/gpu={index}" for index in deployment.gpus]
    elif deployment.gpus:
        # The engine reads the value as CSV: without quotes of its own a comma would end the list.
        own.append(f'--gpus="device={",".join(map(str, deployment.gpus))}"')
    own.append(f"--shm-size={deployment.shared_mebibytes}m")
    own += [f"--ulimit={name}={value}:{value}" for name, value in deployment.limits.items()]
    ports = deployment.ports
    own += [f"--publish={ports.host}:{port}:{inside}" for _, port, inside in ports.published()]
    own += [f"--env={name}={value}" for name, value in deployment.environment.items()]
    line = _confined(deployment).command_line(*own)
    return f"{line}\n{front_container.command_line(deployment)}" if deployment.front else line


def serve(
    client: docker.DockerClient,
    deployment: Deployment,
    image: Image,
    report: Reporter,
    *,
    detach: bool = False,
    seconds: float = READY_SECONDS,
) -> None:
    """Start the server, wait until it is ready and report its models.

    With `detach` it stays; otherwise its log is reported until SIGTERM, which lets it finish its answers and
    removes it, or Ctrl-C, which does not wait for them. A server that does not get ready, or ends by itself,
    is removed, too: SmokeError with its log.
    """
    refuse(client, deployment, image)
    report(f"starting {deployment.name}: {image.name}{_where(deployment)}, {deployment.models}")
    container = start(client, deployment)
    try:
        url = wait(client, container, deployment, report, seconds=seconds)
        report(model_table(url))
        if deployment.front:
            front = front_container.start(client, deployment)
            front_container.wait(front, f"http://{_reached_at(client, deployment)}:{deployment.ports.openai}")
        report(f"{deployment.name} is ready: {_addresses(client, deployment)}")
        if detach:
            report(f"to stop it: invoke serve --stop --name {deployment.name}")
            return
    except BaseException:
        stop(container)
        raise
    try:
        # A user may press Ctrl-C right after this line.
        report("Ctrl-C ends it; its log:")
        for line in follow(container):
            report(line)
        refuse_dead(container, "by itself")
    except KeyboardInterrupt:
        report(f"stopping {deployment.name}")
    finally:
        stop(container)


def _where(deployment: Deployment) -> str:
    return f" on GPU {', '.join(map(str, deployment.gpus))}" if deployment.gpus else " on the CPU"


def _addresses(client: docker.DockerClient, deployment: Deployment) -> str:
    host = _reached_at(client, deployment)
    return ", ".join(f"{name} {host}:{port}" for name, port, _ in deployment.ports.published())


def refuse(client: docker.DockerClient, deployment: Deployment, image: Image) -> None:
    """Raise ConfigError or HostError for an obstacle: a taken name or port, files that cannot be read."""
    _refuse_name(client, deployment.name)
    front_container.refuse(client, deployment)
    if deployment.models is None:
        raise _nothing()
    if blocked := unreadable(deployment.models, *image.user):
        raise HostError(
            f"the server's user ({image.user[0]}) cannot read the model repository",
            where=str(blocked),
            hint=f"chmod -R a+rX {shlex.quote(str(deployment.models))}",
        )
    engine = _host(client)
    if engine == "localhost":
        for name, port, _ in deployment.ports.published():
            _refuse_port(name, deployment.ports.listen, port)
    elif deployment.ports.listens_here_only:
        raise ConfigError(
            f"the engine is on {engine}, where {deployment.ports.listen} cannot be reached from here",
            hint="--listen 0.0.0.0, or an address of that machine; docs/security.md says what that means",
        )


def start(client: docker.DockerClient, deployment: Deployment) -> Container:
    """Start the container; HostError when the engine refuses, and then nothing is left of it."""
    from docker.types import Ulimit

    return _confined(deployment).start(
        client,
        environment=dict(deployment.environment),
        ports={
            f"{inside}/tcp": (deployment.ports.listen, port)
            for _, port, inside in deployment.ports.published()
        },
        shm_size=deployment.shared_memory,
        ulimits=[Ulimit(name=name, soft=n, hard=n) for name, n in deployment.limits.items()],
        device_requests=gpu.requests(deployment.access, deployment.gpus) if deployment.gpus else [],
    )


def _confined(deployment: Deployment) -> Confined:
    if deployment.models is None:
        raise _nothing()
    return Confined(
        what="the server",
        name=deployment.name,
        image=deployment.image,
        command=deployment.command,
        labels=ROLE,
        mounts={triton.MODELS: str(deployment.models)},
        processes=PROCESSES,
        memory=deployment.memory_mebibytes,
    )


def wait(
    client: docker.DockerClient,
    container: Container,
    deployment: Deployment,
    report: Reporter,
    *,
    seconds: float = READY_SECONDS,
) -> str:
    """Wait until the server is ready and its models answer; return the URL of its HTTP endpoint.

    Raises SmokeError with its log when it ends, takes longer than `seconds`, or a model gives no token.
    """
    import requests

    host = _reached_at(client, deployment)
    url = f"http://{host}:{deployment.ports.http}"
    begin, pace = time.monotonic(), Pace()
    while (now := time.monotonic()) < begin + seconds:
        refuse_dead(container, "before it was ready")
        with contextlib.suppress(requests.RequestException):
            if _session().get(f"{url}{triton.READY}", timeout=5).status_code == 200:
                break
        if pace.is_due():
            report(f"still loading after {now - begin:.0f} s; invoke serve --logs shows the log")
        time.sleep(triton.POLL_SECONDS)
    else:
        raise SmokeError(
            f"the server was not ready within {seconds:g} s; its log:\n"
            f"    {triton.log_excerpt(container.logs())}",
            hint="a big model on a slow disk takes longer: --timeout SECONDS",
        )
    left = max(begin + seconds - time.monotonic(), health.READY_SECONDS)
    try:
        probe.answering("ready", probe.Server(host, deployment.ports.http, deployment.ports.grpc, left))
    except probe.Failed as silent:
        refuse_dead(container, "when it was asked for a token")
        raise SmokeError(
            f"the server is ready, but generates no token: {silent}; its log:\n"
            f"    {triton.log_excerpt(container.logs())}",
            hint=triton.DIED_HINT,
        ) from silent
    return url


def refuse_dead(container: Container, when: str) -> None:
    """Raise SmokeError with the last lines of the log when the server has ended."""
    container.reload()
    if container.status == "running":
        return
    state = container.attrs["State"]
    why = _OUT_OF_MEMORY if state.get("OOMKilled") else f"code {state.get('ExitCode')}"
    raise SmokeError(
        f"the server ended {when} ({why}); its log:\n    {triton.log_excerpt(container.logs())}",
        hint=triton.DIED_HINT,
    )


def model_table(url: str) -> str:
    """Return a table of model, version and status (repository extension of the protocol)."""
    index = _session().post(f"{url}/v2/repository/index", timeout=10).json()
    rows = [(model["name"], model.get("version", ""), model.get("state", "")) for model in index]
    return tables.render(("Model", "Version", "Status"), sorted(rows))


def follow(container: Container) -> Iterator[str]:
    """Yield the log from now on, line by line, until the server ends."""
    rest = b""
    for chunk in container.logs(stream=True, follow=True, tail=0):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def find(client: docker.DockerClient, name: str) -> Container:
    """Return a container that `invoke serve` made; ConfigError when there is none of that name."""
    named = _container(client, name)
    if named is None or not _is_ours(named):
        servers = [
            container.name
            for container in client.containers.list(all=True, filters={"label": _filter()})
            if container.name
        ]
        raise ConfigError(
            f"no server is called {name}",
            hint=f"servers here: {', '.join(sorted(servers)) or 'none'}; another one: --name",
        )
    return named


def stop(container: Container) -> None:
    """End the server, with time to finish its answers, and remove its container; before it, its front."""
    from docker.errors import NotFound

    assert container.client is not None
    hurried = signals.by_ctrl_c()
    front_container.stop(container.client, str(container.name), hurried=hurried)
    with contextlib.suppress(NotFound):
        container.stop(timeout=HURRIED_SECONDS if hurried else STOP_SECONDS)
        container.remove(force=True, v=True)


def logs(container: Container) -> str:
    """Return the whole log."""
    return container.logs().decode("utf-8", "replace").rstrip("\n")


def _refuse_name(client: docker.DockerClient, name: str) -> None:
    container = _container(client, name)
    if container is None:
        return
    if not _is_ours(container):
        raise ConfigError(
            f"there is a container {name} that invoke serve did not make", hint="choose another --name"
        )
    raise ConfigError(
        f"there is already a server {name} ({container.status})",
        hint=f"invoke serve --stop --name {name}, or another --name and other ports",
    )


def _container(client: docker.DockerClient, name: str) -> Container | None:
    from docker.errors import NotFound

    try:
        return client.containers.get(name)
    except NotFound:
        return None


def _is_ours(container: Container) -> bool:
    return all(container.labels.get(name) == value for name, value in ROLE.items())


def _filter() -> list[str]:
    return [f"{name}={value}" for name, value in ROLE.items()]


def _refuse_port(name: str, address: str, port: int) -> None:
    """Raise HostError when something listens there: the engine's own message would come after the start."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        # As servers do: a connection that has just ended does not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as taken:
            if taken.errno == errno.EACCES:  # below 1024, where the engine may listen and this user may not
                return
            if taken.errno == errno.EADDRNOTAVAIL:
                raise HostError(
                    f"this machine has no address {address}", hint="--listen with one of `ip address`"
                ) from taken
            raise HostError(
                f"port {port} is in use", where=f"the {name} endpoint", hint=f"choose another --{name}-port"
            ) from taken


def _session() -> requests.Session:
    """Return a session without the proxies of the environment, which cannot reach this machine's ports."""
    import requests

    session = requests.Session()
    session.trust_env = False
    return session


def _nothing() -> ConfigError:
    return ConfigError("nothing to serve", hint="--model-repo DIR")


def _reached_at(client: docker.DockerClient, deployment: Deployment) -> str:
    ports = deployment.ports
    return _host(client) if ports.listens_everywhere else ports.host


def _host(client: docker.DockerClient) -> str:
    """Return the host of published ports: the machine of the engine."""
    base = urlsplit(client.api.base_url)
    return base.hostname or "localhost" if base.scheme in ("http", "https") else "localhost"

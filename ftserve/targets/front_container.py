"""The OpenAI front as a container of this machine's engine, in the network of its server's container.

So the server's own container publishes the port, and nothing but the front reaches the server by another way.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from typing import TYPE_CHECKING

from ftbuild import triton
from ftbuild.errors import ConfigError, HostError, SmokeError
from ftbuild.plan import LABELS
from ftserve import front_options
from ftserve.deployment import Deployment
from ftserve.front.settings import LOOPBACK
from ftserve.image_choice import USER
from ftserve.requirements import unreadable
from ftserve.targets.confined import Confined

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

ROLE = {f"{LABELS}.role": "serve-openai"}
READY_SECONDS = 60
# Longer than it waits for answers that are being computed.
STOP_SECONDS = 60
HURRIED_SECONDS = 1
_BUILD = "invoke serve.front builds it; or --openai-image"


def name(server: str) -> str:
    """Return the name of the container beside that of a server."""
    return f"{server}-openai"


def command_line(deployment: Deployment) -> str:
    """Return what `start` does as a `docker run` to paste into a shell."""
    return _confined(deployment).command_line(f"--network={_network(deployment)}")


def refuse(client: docker.DockerClient, deployment: Deployment) -> None:
    """Raise ConfigError or HostError for an obstacle: no image, a taken name, a file that cannot be read."""
    from docker.errors import NotFound

    if deployment.front is None:
        return
    images = client.images.list(name=deployment.front.image)
    if not images:
        raise ConfigError(f"the image {deployment.front.image} is not here", hint=_BUILD)
    with contextlib.suppress(NotFound):
        client.containers.get(name(deployment.name))
        raise ConfigError(
            f"there is already a container {name(deployment.name)}", hint="choose another --name"
        )
    keys = deployment.front.keys
    if keys and unreadable(keys, *USER):
        raise HostError(
            f"the front's user ({USER[0]}) cannot read the file with API keys",
            where=str(keys),
            hint=f"chown {USER[0]} {shlex.quote(str(keys))}",
        )


def start(client: docker.DockerClient, deployment: Deployment) -> Container:
    """Start the container beside the server's; HostError when the engine refuses, and nothing is left."""
    return _confined(deployment).start(client, network_mode=_network(deployment))


def wait(container: Container, url: str) -> None:
    """Wait until the front answers and finds its server; SmokeError with its log when it does not."""
    import requests

    session = requests.Session()
    session.trust_env = False
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        container.reload()
        if container.status != "running":
            break
        with contextlib.suppress(requests.RequestException):
            if session.get(f"{url}{front_options.HEALTH}", timeout=20).status_code == 200:
                return
        time.sleep(triton.POLL_SECONDS)
    raise SmokeError(
        f"the OpenAI front does not answer; its log:\n    {triton.log_excerpt(container.logs())}",
        hint="its log names the cause",
    )


def find(client: docker.DockerClient, server: str) -> Container | None:
    """Return the front of a server, None where it has none."""
    from docker.errors import NotFound

    try:
        container = client.containers.get(name(server))
    except NotFound:
        return None
    return container if all(container.labels.get(key) == value for key, value in ROLE.items()) else None


def stop(client: docker.DockerClient, server: str, *, hurried: bool = False) -> None:
    """End and remove the front of a server, if it has one; unless `hurried`, its answers are waited for."""
    from docker.errors import NotFound

    container = find(client, server)
    if container is not None:
        with contextlib.suppress(NotFound):
            container.stop(timeout=HURRIED_SECONDS if hurried else STOP_SECONDS)
            container.remove(force=True, v=True)


def _network(deployment: Deployment) -> str:
    return f"container:{deployment.name}"


def _confined(deployment: Deployment) -> Confined:
    assert deployment.front is not None
    assert deployment.models is not None
    keys = deployment.front.keys
    return Confined(
        what="the OpenAI front",
        name=name(deployment.name),
        image=deployment.front.image,
        command=deployment.front.command(LOOPBACK, keys=keys is not None),
        labels=ROLE,
        mounts={
            front_options.INSIDE: str(deployment.models / deployment.front.tokenizer),
            **({front_options.KEYS: str(keys)} if keys else {}),
        },
        processes=front_options.PROCESSES,
        memory=front_options.MEMORY_MEBIBYTES,
    )

"""The Docker Engine through the docker SDK: connection, local images and their names, removal of containers.

Never builds, as the SDK has no BuildKit. The SDK is imported when it is first needed, since it costs more
start-up time than the rest of the program.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import process, shell
from ftbuild.host.redaction import redact

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

ANSWER_SECONDS = 10
# Pulling or importing an operating system over a slow line.
WORK_SECONDS = 1800
# How the SDK names an engine that it reaches through a socket of this machine.
_SOCKET = "http+docker://"
# The label of ftbuild's containers, which distinguishes them from others.
ROLE = "io.ftbuild.role"
# The label of those that end with the command that made them: its process.
OWNER = "io.ftbuild.owner"


class ImageNotBuilt(FtbuildError):
    """An image that a build makes is not in the engine. Callers know what that means for a user."""


class PullRefused(FtbuildError):
    """A registry does not give an image to the engine. Callers know what that means for a user."""


def connect() -> docker.DockerClient:
    """Return a client of the engine that DOCKER_HOST names; raise HostError when none answers."""
    import docker
    from docker.errors import DockerException

    try:
        _reach_socket()
        client = docker.from_env(timeout=ANSWER_SECONDS)
        client.ping()
        client.api.timeout = WORK_SECONDS
    except (DockerException, ValueError) as silent:  # ValueError: a port in DOCKER_HOST that is none
        if isinstance(silent.__cause__, PermissionError):
            raise HostError(
                "this user may not use the Docker Engine",
                where=_reason(silent),
                hint="sudo usermod -aG docker USER, then log in again; or run the command as root",
            ) from silent
        named = os.environ.get("DOCKER_HOST")
        raise HostError(
            "the Docker Engine does not answer",
            where=_reason(silent),
            hint=f"start the one at DOCKER_HOST={redact(named)}, or unset that variable"
            if named
            else "start it (systemctl start docker), set DOCKER_HOST, or run ./bootstrap, which installs one",
        ) from silent
    return client


def _reach_socket() -> None:
    """Raise DockerException unless the engine's socket takes connections, where it has one.

    The SDK leaves a socket open which it cannot connect.
    """
    from docker.errors import DockerException
    from docker.utils import parse_host

    scheme, _, path = str(parse_host(os.environ.get("DOCKER_HOST"))).partition("://")
    if scheme != "http+unix":
        return
    file = f"/{path.lstrip('/')}"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_SECONDS)
        try:
            probe.connect(file)
        except OSError as refused:
            raise DockerException(f"{refused.strerror or refused}: {file}") from refused


def keeps_attestations(info: Mapping[str, Any]) -> bool:
    """Return whether the engine of that `docker info` keeps images and attestations in containerd's store."""
    return ["driver-type", "io.containerd.snapshotter.v1"] in (info.get("DriverStatus") or [])


def bridge(client: docker.DockerClient) -> str:
    """Return the interface of the default network of containers and build steps; "" without one."""
    for network in client.networks.list(names=["bridge"]):
        return str((network.attrs.get("Options") or {}).get("com.docker.network.bridge.name", ""))
    return ""


def image(client: docker.DockerClient, reference: str) -> Image | None:
    """Return the local image of that name, or None."""
    from docker.errors import ImageNotFound

    try:
        return client.images.get(reference)
    except ImageNotFound:
        return None


def require_image(client: docker.DockerClient, name: str) -> str:
    """Return the id of an image that a build should have made; raise ImageNotBuilt when it is not there."""
    tagged = image(client, name)
    if tagged is None:
        raise ImageNotBuilt(f"there is no image {name}", hint="invoke build with the options of this cell")
    return str(tagged.id)


def tag(client: docker.DockerClient, image_reference: str, name: str) -> None:
    """Tag a local image as `name`."""
    repository, _, label = name.rpartition(":")
    client.images.get(image_reference).tag(repository, label)


@contextlib.contextmanager
def replacing(client: docker.DockerClient, *names: str) -> Iterator[None]:
    """Let a block give names to other images; one that has lost its last name by then is removed.

    It would be an image without a name, which no command of ftbuild finds again. One that a container uses
    stays.
    """
    before = {str(tagged.id) for name in names if (tagged := image(client, name))}
    try:
        yield
    finally:
        for known in before:
            _remove_nameless(client, known)


def _remove_nameless(client: docker.DockerClient, image_id: str) -> None:
    from docker.errors import APIError

    tagged = image(client, image_id)
    if tagged is not None and not (tagged.attrs.get("RepoTags") or tagged.attrs.get("RepoDigests")):
        with contextlib.suppress(APIError):  # a container has it
            client.images.remove(image_id)


def pull(client: docker.DockerClient, name: str) -> None:
    """Fetch `repository@digest` or `repository:tag`; raise PullRefused when the registry does not give it.

    In a thread, raises Interrupted soon after `shell.interrupt`.
    """
    from docker.errors import DockerException
    from docker.utils import parse_repository_tag

    try:
        repository, tag = parse_repository_tag(name)
        for event in client.api.pull(repository, tag or "latest", stream=True, decode=True):
            shell.require_uninterrupted(f"pulling {name}")
            if "error" in event:  # after its answer, when a layer cannot be had
                raise DockerException(event["error"])
        client.images.get(name)
    except DockerException as refused:
        hint = f"docker login {name.partition('/')[0]}"
        raise PullRefused(f"cannot pull: {_reason(refused)}", where=name, hint=hint) from refused


def flush(client: docker.DockerClient) -> None:
    """Write to disk what an engine of this machine has unpacked, if this user may; nothing for one elsewhere.

    The kernel writes a whole file system before it unmounts an overlay of it, as the engine does for each
    container that it removes (Linux, fs/overlayfs/super.c, ovl_sync_fs).
    """
    if not client.api.base_url.startswith(_SOCKET):
        return
    data = Path(client.info()["DockerRootDir"])
    # Only root may open it; it may be a file system of its own, whose parent is another one then.
    place = data if os.access(data, os.R_OK) else data.parent
    with contextlib.suppress(HostError, shell.CommandFailed):
        shell.run(["sync", "--file-system", str(place)], timeout=WORK_SECONDS, check=False)


def throw_away_labels(role: str) -> dict[str, str]:
    """Return the labels of a container that must not outlive this process."""
    return {ROLE: role, OWNER: process.identity()}


def throw_away_name() -> str:
    """Return a name for a container, so that it can be removed even when Ctrl-C came before its id."""
    return f"ftbuild-{uuid.uuid4().hex[:12]}"


def remove_container(client: docker.DockerClient, name: str) -> None:
    """Remove a container by its name, running or not; also one that the engine is about to create."""
    from docker.errors import NotFound

    for _ in range(10):
        with contextlib.suppress(NotFound):
            client.api.remove_container(name, force=True, v=True)
            return
        time.sleep(0.1)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__

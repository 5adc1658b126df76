"""Containers that killed commands left behind: they hold ports and the memory of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.host import process
from ftbuild.host.garbage import Garbage
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container


def remove(client: docker.DockerClient, report: Reporter) -> None:
    """Remove the containers of processes of this machine that have ended, and say so.

    Those of other machines that use the engine, and servers of `invoke serve`, have no such owner.
    """
    from docker.errors import APIError

    for orphan in find(client):
        with suppress(APIError):  # another command removes it at the same time
            orphan.remove(force=True, v=True)
            report(f"removed {orphan.name} ({orphan.labels[daemon.ROLE]}), left behind by a killed command")


def remove_own(client: docker.DockerClient) -> None:
    """Remove the containers of this process, whose threads wait for them."""
    from docker.errors import APIError

    label = f"{daemon.OWNER}={process.identity()}"
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        with suppress(APIError):  # its thread removes it at the same time
            container.remove(force=True, v=True)


def garbage(client: docker.DockerClient) -> Iterator[Garbage]:
    """Yield the same containers for `invoke clean`."""
    for orphan in find(client):
        yield Garbage("container", str(orphan.name), 0, partial(_remove, orphan))


def _remove(orphan: Container) -> str | None:
    from docker.errors import APIError, NotFound

    try:
        orphan.remove(force=True, v=True)
    except NotFound:
        return None
    except APIError as refused:  # 409: another command removes it at the same time
        return None if refused.status_code == 409 else str(refused.explanation)
    return None


def find(client: docker.DockerClient) -> Iterator[Container]:
    """Yield the containers whose command has ended."""
    labelled = client.containers.list(all=True, filters={"label": daemon.OWNER}, ignore_removed=True)
    return (container for container in labelled if process.is_dead(container.labels.get(daemon.OWNER, "")))

"""Images from Docker Engine to a registry, with the engine's complaints heard.

The SDK reports a refused push as a line in its stream, not as an exception (docker-py issue 3277).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.publishing import remote_image, retry
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry import credentials, reference
from ftbuild.registry.client import Repository
from ftbuild.registry.errors import login_hint
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

REPORT_SECONDS = 10.0
_DENIED = ("unauthorized", "denied", "no basic auth", "authentication required")


def push(
    client: docker.DockerClient, image: str, repository: Repository, tag: str, report: Reporter
) -> RemoteImage:
    """Push the image of that id under a tag, and return what the registry then has.

    Raises PublishError when the registry refuses, or holds something else than this image afterwards.
    """
    name = f"{repository.name}:{tag}"
    daemon.tag(client, image, name)
    try:
        retry.with_backoff(lambda: _push(client, repository.name, tag, report), report)
    finally:
        from docker.errors import DockerException

        with suppress(DockerException):
            client.images.remove(name, noprune=True)
    there = remote_image.read(repository, tag)
    if there is None or image not in there.ids:
        raise PublishError(
            f"the registry holds another image than the one that was pushed as {name}",
            where=f"{image} was pushed, {there.whole.descriptor.digest if there else 'nothing'} is there",
            hint="somebody else pushes the same cell: try again when they are done",
        )
    return there


def _push(client: docker.DockerClient, repository: str, tag: str, report: Reporter) -> None:
    place = reference.parse(repository)
    login = credentials.find(place.host)  # read anew for each try, as a helper's token may have run out
    stream = client.api.push(
        repository, tag=tag, stream=True, decode=True, auth_config=login.auth_config() if login else {}
    )
    ended = follow(stream, report)
    if ended.problem is None:
        return
    denied = any(word in ended.problem.lower() for word in _DENIED)
    if denied and ended.bytes_sent:
        raise PublishError(f"{retry.TOKEN_EXPIRED}: {ended.problem}", where=f"{repository}:{tag}")
    raise PublishError(
        f"pushing was refused: {ended.problem}",
        where=f"{repository}:{tag}",
        hint=login_hint(place.registry) if denied else None,
    )


@dataclass(frozen=True)
class Ended:
    """How a push ended: the complaint of registry or engine, if any, and how much went over the line."""

    problem: str | None
    bytes_sent: int


def follow(stream: Iterable[Mapping[str, Any]], report: Reporter) -> Ended:
    """Read the engine's stream to its end, and say now and then how far the push is."""
    layers: dict[str, tuple[int, int]] = {}
    last = time.monotonic()
    for event in stream:
        if "error" in event:
            return Ended(str(event["error"]), sum(sent for sent, _ in layers.values()))
        progress = event.get("progressDetail") or {}
        if "current" in progress and "id" in event:
            layers[event["id"]] = (progress["current"], max(progress.get("total", 0), progress["current"]))
        if layers and time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            done, total = (sum(sizes[i] for sizes in layers.values()) / 1e6 for i in (0, 1))
            report(f"pushed {done:.0f} of {total:.0f} MB")
    return Ended(None, sum(sent for sent, _ in layers.values()))

"""Pushes from Docker Engine to a registry, with the engine's errors raised.

The SDK reports a refused push as a line in its stream, not as an exception (docker-py issue 3277).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.publishing import remote_image, retry
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry import credentials, reference
from ftbuild.registry.answers import DIGEST
from ftbuild.registry.client import Repository
from ftbuild.registry.errors import login_hint
from ftbuild.text.reporter import Pace, Reporter

if TYPE_CHECKING:
    import docker

_TOLD = re.compile(r"digest: (\S+) size: \d+$")
_DENIED = ("unauthorized", "denied", "no basic auth", "authentication required")


def push_image(
    client: docker.DockerClient, image: str, repository: Repository, tag: str, report: Reporter
) -> RemoteImage:
    """Push the image with this id under a tag, and return the image in the registry.

    Layers that the registry has are not sent again. The image is the one whose digest the engine tells, since
    a tag, and a manifest that names our configuration, may come from somebody else. Raises PublishError if
    the registry refuses, or has another image afterwards.
    """
    name = f"{repository.name}:{tag}"
    if daemon.image(client, image) is None:
        raise PublishError(f"there is no image {image} to be pushed", where=name)
    daemon.tag(client, image, name)
    try:
        digest = retry.with_backoff(lambda: _push(client, repository.name, tag, report), report)
    finally:
        from docker.errors import DockerException

        with suppress(DockerException):
            client.images.remove(name, noprune=True)
    remote = remote_image.read(repository, digest)
    if remote is None or image not in remote.ids:
        raise PublishError(
            f"the registry has another image than the one that was pushed as {name}",
            where=f"pushed {image}, found {remote.tagged.descriptor.digest if remote else 'nothing'}",
            hint="if another run publishes the same cell, retry when it has ended",
        )
    return remote


def _push(client: docker.DockerClient, repository: str, tag: str, report: Reporter) -> str:
    """Push once, and return the digest that the engine gave the manifest."""
    place = reference.parse(repository)
    login = credentials.find(place.host)  # again for each try: a helper's token may have expired
    stream = client.api.push(
        repository, tag=tag, stream=True, decode=True, auth_config=login.auth_config() if login else {}
    )
    ended = follow(stream, report)
    if ended.problem is None:
        if not DIGEST.fullmatch(ended.digest):
            raise PublishError("the engine does not tell what it pushed", where=f"{repository}:{tag}")
        return ended.digest
    denied = any(word in ended.problem.lower() for word in _DENIED)
    if denied and ended.bytes_sent:
        raise PublishError(f"{retry.TOKEN_EXPIRED}: {ended.problem}", where=f"{repository}:{tag}")
    raise PublishError(
        f"the push was refused: {ended.problem}",
        where=f"{repository}:{tag}",
        hint=login_hint(place.registry) if denied else "see the registry's log, then publish again",
    )


@dataclass(frozen=True)
class Ended:
    """Outcome of a push: the error of registry or engine, if any, the bytes sent, the manifest's digest."""

    problem: str | None
    bytes_sent: int
    digest: str = ""


def follow(stream: Iterable[Mapping[str, Any]], report: Reporter) -> Ended:
    """Read the engine's stream to its end, and report progress now and then."""
    layers: dict[str, tuple[int, int]] = {}
    pace, digest = Pace(), ""
    for event in stream:
        digest = _digest_in(event) or digest
        if "error" in event:
            return Ended(str(event["error"]), sum(sent for sent, _ in layers.values()))
        progress = event.get("progressDetail") or {}
        if "current" in progress and "id" in event:
            layers[event["id"]] = (progress["current"], max(progress.get("total", 0), progress["current"]))
        if layers and pace.is_due():
            done, total = (sum(sizes[i] for sizes in layers.values()) / 1e6 for i in (0, 1))
            report(f"pushed {done:.0f} of {total:.0f} MB")
    return Ended(None, sum(sent for sent, _ in layers.values()), digest)


def _digest_in(event: Mapping[str, Any]) -> str:
    """Return the digest that an event tells at the end of a push, in a field or in its words; else ""."""
    told = _TOLD.search(str(event.get("status", "")))
    return str((event.get("aux") or {}).get("Digest") or (told[1] if told else ""))

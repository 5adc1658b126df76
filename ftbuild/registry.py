"""OCI distribution over requests: is a registry there, and does it have an image (distribution-spec v1.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftbuild.errors import HostError

DOCKER_HUB = "registry-1.docker.io"


@dataclass(frozen=True)
class Reference:
    """An image name, taken apart."""

    host: str
    repository: str
    tag: str
    digest: str | None


def parse(name: str) -> Reference:
    """`host/repository:tag@digest`, with Docker's defaults (github.com/distribution/reference)."""
    rest, _, digest = name.partition("@")
    first, slash, tail = rest.partition("/")
    has_host = bool(slash) and (any(mark in first for mark in ".:") or first == "localhost")
    host, path = (first, tail) if has_host else (DOCKER_HUB, rest)
    repository, tag = re.fullmatch(r"(.+?)(?::([\w][\w.-]*))?", path).groups()  # type: ignore[union-attr]
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(host, repository, tag or "latest", digest or None)


def require_reachable(name: str, *, purpose: str, hint: str, timeout: float = 5.0) -> None:
    """HostError in `timeout` seconds unless the image's registry answers its API's root.

    Any HTTP answer counts: 401 is how a registry asks for a token (distribution-spec, `end-1`).
    """
    import requests

    host = parse(name).host
    try:
        requests.get(f"https://{host}/v2/", timeout=timeout)
    except requests.RequestException as silent:
        raise HostError(
            f"{purpose}: the image {name} is not on this machine and its registry {host} cannot be reached",
            where=f"https://{host}/v2/: {type(silent).__name__}",
            hint=hint,
        ) from silent

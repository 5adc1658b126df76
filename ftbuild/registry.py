"""OCI registries over HTTP: does one answer, and which image does a tag mean (distribution-spec v1.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftbuild.errors import HostError

if TYPE_CHECKING:
    import requests

DOCKER_HUB = "registry-1.docker.io"
TIMEOUT_SECONDS = 5.0
# A multi-platform index first, since its digest is the one that `docker pull` shows; then single images.
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


@dataclass(frozen=True)
class Reference:
    """An image name, taken apart."""

    host: str
    repository: str
    tag: str
    digest: str | None

    @property
    def api(self) -> str:
        """The root of the registry's API; plain HTTP on this machine only, as Docker has it."""
        name = self.host.rpartition(":")[0] or self.host
        scheme = "http" if name in ("localhost", "127.0.0.1") else "https"
        return f"{scheme}://{self.host}/v2/"


def parse(name: str) -> Reference:
    """`host/repository:tag@digest`, with Docker's defaults (github.com/distribution/reference)."""
    rest, _, digest = name.partition("@")
    first, slash, tail = rest.partition("/")
    has_host = bool(slash) and (any(mark in first for mark in ".:") or first == "localhost")
    host, path = (first, tail) if has_host else (DOCKER_HUB, rest)
    repository, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(host, repository, tag or "latest", digest or None)


def require_reachable(name: str, *, purpose: str, hint: str) -> None:
    """HostError within seconds unless the image's registry answers.

    Any HTTP answer counts: 401 is how a registry asks for a token (distribution-spec, `end-1`).
    """
    api = parse(name).api
    try:
        _get(api)
    except HostError as silent:
        raise HostError(
            f"{purpose}: the image {name} is not on this machine and its registry cannot be reached",
            where=silent.where,
            hint=hint,
        ) from silent


def digest(name: str) -> str:
    """The digest that a tag means now (`sha256:...`); HostError when registry or tag cannot be had.

    Anonymous: a registry that asks for a token gets one without credentials (distribution-spec, end-3; the
    token protocol is docs.docker.com/registry/spec/auth/token).
    """
    reference = parse(name)
    url = f"{reference.api}{reference.repository}/manifests/{reference.tag}"
    answer = _get(url, accept=_MANIFESTS)
    if answer.status_code == 401:
        answer = _get(url, accept=_MANIFESTS, token=_token(answer))
    found = answer.headers.get("Docker-Content-Digest", "")
    if answer.status_code != 200 or not found:
        raise HostError(f"the registry has no {name}", where=f"{url}: HTTP {answer.status_code}")
    return found


def _token(refused: requests.Response) -> str:
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', refused.headers.get("WWW-Authenticate", "")))
    realm = wanted.pop("realm", "")
    if not realm.startswith("https://"):
        raise HostError("the registry wants a login", where=refused.url, hint="docker login")
    query = "&".join(f"{key}={value}" for key, value in wanted.items())
    body = _get(f"{realm}?{query}").json()
    return str(body.get("token") or body.get("access_token") or "")


def _get(url: str, *, accept: str = "*/*", token: str | None = None) -> requests.Response:
    import requests

    headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        return requests.get(url, headers=headers, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as silent:
        raise HostError("a registry cannot be reached", where=f"{url}: {type(silent).__name__}") from silent

"""Names of images and repositories: parsing, composition, and rules of known registries."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ftbuild.errors import ConfigError

# Images are called docker.io/..., while the API answers elsewhere (github.com/distribution/reference).
DOCKER_HUB = "registry-1.docker.io"
HUB_NAME = "docker.io"
_HUB_HOSTS = (HUB_NAME, "index.docker.io", DOCKER_HUB)
# distribution-spec v1.1, "Pulling manifests": the grammars of <name> and of a tag, and how long host and
# name may be together for most clients.
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST_NAME = 255
# The option that names a registry, unless it is another one.
REGISTRY = "--registry"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_PORT = 65_535
# What Docker takes for a host and not for the first part of a path has a dot or a port, or is localhost.
_HOST = re.compile(
    r"(?:localhost|\[[0-9A-Fa-f:]+\]|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?|[A-Za-z0-9-]+:[0-9]{1,5}"
)


@dataclass(frozen=True)
class Reference:
    """A parsed image name; `host` is where the API answers."""

    host: str
    repository: str
    tag: str
    digest: str | None

    @property
    def registry(self) -> str:
        """The registry as `docker login` and image names write it."""
        return written(self.host)

    def __str__(self) -> str:
        pin = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}:{self.tag}{pin}"


@dataclass(frozen=True)
class Rule:
    """The number of parts of a repository's name on a registry, the image's own included."""

    fewest: int
    most: int | None
    shape: str
    source: str

    def allows(self, parts: int) -> bool:
        """Return whether a name of so many parts can exist."""
        return self.fewest <= parts <= (self.most or parts)


# A Harbor or GitLab of one's own has any host name and cannot be recognized by it.
RULES = {
    DOCKER_HUB: Rule(2, 2, "docker.io/USER", "docs.docker.com/docker-hub/repos/create"),
    "nvcr.io": Rule(
        2, 3, "nvcr.io/ORG or nvcr.io/ORG/TEAM", "docs.nvidia.com/ngc, NGC Private Registry User Guide"
    ),
    "ghcr.io": Rule(2, None, "ghcr.io/OWNER", "docs.github.com, Working with the Container registry"),
    # Up to two levels below the project; where groups end and the project begins, a name does not tell.
    "registry.gitlab.com": Rule(
        2,
        None,
        "registry.gitlab.com/GROUP/PROJECT",
        "docs.gitlab.com/user/packages/container_registry, naming",
    ),
}


def parse(name: str) -> Reference:
    """Parse `host/repository:tag@digest`, with Docker's defaults (github.com/distribution/reference)."""
    rest, _, digest = name.partition("@")
    first, slash, tail = rest.partition("/")
    has_host = bool(slash) and (any(mark in first for mark in ".:") or first == "localhost")
    host, path = (first, tail) if has_host else (DOCKER_HUB, rest)
    host = DOCKER_HUB if host in _HUB_HOSTS else host
    repository, _, tag = path.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(host, repository, tag or "latest", digest or None)


def written(host: str) -> str:
    """Return a host as `docker login` and image names write it: Docker Hub's API answers elsewhere."""
    return HUB_NAME if host in _HUB_HOSTS else host


def repository(registry: str, image: str, option: str = REGISTRY) -> str:
    """Return the repository `host[:port]/path/image` of a registry and an image's name.

    Raises ConfigError when no registry, or not the one of that host, can have such a repository; it names the
    `option` that has it.
    """
    host, _, path = registry.rstrip("/").partition("/")
    port = re.search(r":([0-9]+)$", host)
    if not _HOST.fullmatch(host) or (port and int(port[1]) > MAX_PORT):
        raise _unusable(
            option, registry, f"{host!r} is not the host of a registry", _host_hint(option, registry)
        )
    parts = [*(path.split("/") if path else []), *image.split("/")]
    for part in parts:
        if not _COMPONENT.fullmatch(part):
            raise _unusable(
                option, registry, f"{part!r} cannot be part of a repository's name", _part_hint(part)
            )
    name = "/".join([written(host), *parts])
    if len(name) > LONGEST_NAME:
        raise _unusable(
            option, registry, f"a name of {len(name)} characters is too long", f"{LONGEST_NAME} are allowed"
        )
    rule = RULES.get(parse(name).host)
    if rule and not rule.allows(len(parts)):
        raise _unusable(
            option,
            registry,
            f"{host} cannot have a repository {name}",
            f"{option} {rule.shape} ({rule.source})",
        )
    return name


def check_tag(tag: str) -> str:
    """Return `tag`; raise ConfigError when it breaks the grammar of tags."""
    if not _TAG.fullmatch(tag):
        raise ConfigError(
            f"{tag[:140]!r} cannot be a tag",
            hint="a tag has 1 to 128 letters, digits, underscores, dots and hyphens, no dot or hyphen first",
        )
    return tag


def check_image(name: str) -> str:
    """Return `name`; raise ConfigError unless it names an image as `docker run` takes it, ids included."""
    rest, at, digest = name.partition("@")
    repository, colon, tag = rest.rpartition(":") if ":" in rest.rpartition("/")[2] else (rest, "", "")
    first, slash, path = repository.partition("/")
    has_host = bool(slash) and bool(_HOST.fullmatch(first))
    parts = path.split("/") if has_host else repository.split("/")
    if (
        len(repository) > LONGEST_NAME
        or not all(_COMPONENT.fullmatch(part) for part in parts)
        or (colon and not _TAG.fullmatch(tag))
        or (at and not _DIGEST.fullmatch(digest))
    ):
        raise ConfigError(
            f"{name[:140]!r} is not the name of an image",
            hint="[host/]path[:tag][@sha256:...], the path in lower case",
        )
    return name


def _unusable(option: str, registry: str, what: str, hint: str) -> ConfigError:
    """Make the error; what stands before an @ may be a password."""
    hidden = registry.rpartition("@")[0]
    if not hidden:
        return ConfigError(what, where=f"{option} {registry}", hint=hint)
    return ConfigError(
        "a registry is named without user and password",
        where=f"{option} ***@{registry.removeprefix(hidden + '@')}",
        hint="docker login keeps them",
    )


def _host_hint(option: str, registry: str) -> str:
    bare = registry.rpartition("://")[2]
    if bare != registry and _HOST.fullmatch(bare.partition("/")[0]):
        return f"{option} {bare}, without the scheme"
    # A user there has images, and nothing between.
    user = name if _COMPONENT.fullmatch(name := registry.strip("/")) else "USER"
    return f"host[:port]/path; on Docker Hub {option} {HUB_NAME}/{user}"


def _part_hint(part: str) -> str:
    lower = part.lower()
    if lower != part and _COMPONENT.fullmatch(lower):
        return f"repository names are in lower case: {lower}"
    return "lower case letters and digits, between them '.', '_', '__' or hyphens; no tag"

"""buildx builders, wherever they are: whether one answers, its driver, and the machine it compiles on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ftbuild.engine import buildx, daemon
from ftbuild.errors import ConfigError, HostError
from ftbuild.host import shell
from ftbuild.text import terminal

# The builder of the engine that DOCKER_HOST names, whatever `docker buildx use` has chosen.
ENGINE = "default"
# A builder in a container or a pod is started first, which may pull BuildKit's image.
START_SECONDS = 300
ANSWER_SECONDS = 20
# Drivers whose nodes are on a Docker Engine, which knows cores and memory (docker/buildx driver/).
DOCKER, CONTAINER = "docker", "docker-container"
RUNNING = "running"
# Of builders and of docker's contexts, which are builders too (docker/buildx store/util.go; docker/cli
# cli/context/store/store.go). What begins with a hyphen would be an option.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", re.ASCII)
_FIELD = r"^{name}:[ \t]*(.*?)[ \t]*$"
_CORES = re.compile(r'(?<![\w.-])limits\.cpu="(\d+(?:\.\d+)?)(m?)"')


@dataclass(frozen=True)
class Machine:
    """Cores and memory that a builder may use."""

    cores: int
    memory_bytes: int


@dataclass(frozen=True)
class Builder:
    """A builder that answers. `machine` is None where neither an engine nor the driver's options show it.

    `limit` are the bytes of memory that the driver's options allow. `engine` is the id of the Docker Engine
    that it is part of, empty for one that belongs to none. `attests`: it can fill layer caches and attest
    images, which an engine with its own store cannot (docs.docker.com/build/builders/drivers).
    """

    name: str
    driver: str
    machine: Machine | None
    limit: int | None = None
    engine: str = ""
    attests: bool = True


def find(name: str, *, start: bool = False) -> Builder:
    """Return the builder of that name; with `start` it is started if it is not running.

    Raises HostError if there is none, or if it does not answer.
    """
    text = _inspected(name, start=start)
    if problem := _problem(text):
        raise HostError(f"builder {name} does not answer: {problem}", hint=_hint(name))
    driver, endpoint = _field(text, "Driver"), _field(text, "Endpoint")
    info = _engine(name, endpoint) if driver in (DOCKER, CONTAINER) else {}
    limit = buildx.memory_limit(text)
    return Builder(
        name,
        driver,
        Machine(int(info["NCPU"]), int(info["MemTotal"])) if info else _limits(text, limit),
        limit,
        str(info["ID"]) if driver == DOCKER else "",
        driver != DOCKER or daemon.keeps_attestations(info),
    )


def silence(name: str) -> str:
    """Return why a builder does not answer; empty if it does."""
    try:
        return _problem(_inspected(name))
    except HostError as gone:
        return gone.what


def require_platform(name: str, platform: str) -> None:
    """Raise HostError if a builder that answers runs no programs of a platform, `linux/arm64`.

    It names all that it runs, those of registered emulators (binfmt_misc) as well.
    """
    nodes = re.findall(_FIELD.format(name="Platforms"), _inspected(name), re.M)
    known = {each.strip(" *") for node in nodes for each in node.split(",") if each.strip(" *")}
    if known and platform not in known:
        raise HostError(
            f"{'the engine' if name == ENGINE else f'builder {name}'} runs no programs of {platform}",
            where=f"docker buildx inspect {name}: {', '.join(sorted(known))}",
            hint="use a machine of that platform, or another --base; --dry-run shows the plan on any machine",
        )


def _inspected(name: str, *, start: bool = False) -> str:
    """Return the output of `docker buildx inspect`, which also reports that a builder cannot be reached."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"there can be no builder {terminal.quoted(name)}",
            hint="docker buildx ls names all: letters and digits, between them any of _.+-",
        )
    command = ["docker", "buildx", "inspect", *(["--bootstrap"] if start else []), name]
    try:
        return shell.run(command, timeout=START_SECONDS if start else ANSWER_SECONDS).stdout
    except shell.CommandFailed as failed:
        last = (failed.result.stderr.strip() or failed.what).splitlines()[-1]
        unknown = re.search(r"no builder .* found", last)
        what = f"there is no builder {name}" if unknown else f"builder {name} does not answer: {last}"
        raise HostError(what, hint=_hint(name)) from failed


def _problem(described: str) -> str:
    """Return why the first node of a builder cannot be used, or an empty text."""
    if (status := _field(described, "Status")) == RUNNING:
        return ""
    return _field(described, "Error") or f"it is {status or 'not running'}"


def _field(described: str, name: str) -> str:
    """Return the first field of that name: of the builder, else of its first node, which is the one used."""
    match = re.search(_FIELD.format(name=re.escape(name)), described, re.M)
    return match[1] if match else ""


def _engine(name: str, endpoint: str) -> Mapping[str, Any]:
    """Return `docker info` of the engine at a node's endpoint, the name of a context or an address."""
    where = ["--host" if "://" in endpoint else "--context", endpoint]
    command = ["docker", *where, "info", "--format", "{{json .}}"]
    try:
        info: dict[str, Any] = json.loads(shell.run(command, timeout=ANSWER_SECONDS).stdout)
    except shell.CommandFailed as failed:
        last = (failed.result.stderr.strip() or failed.what).splitlines()[-1]
        raise HostError(f"builder {name} does not answer: {last}", hint=_hint(name)) from failed
    return info


def _limits(described: str, limit: int | None) -> Machine | None:
    """Return the limits of a pod (Kubernetes' units), if both are set: its node may be any."""
    match = _CORES.search(described)
    if not match or not limit:
        return None
    cores = float(match[1]) / (1000 if match[2] else 1)
    return Machine(max(1, int(cores)), limit)


def _hint(name: str) -> str:
    return f"docker buildx ls lists all builders, docker buildx inspect --bootstrap {name} starts it"

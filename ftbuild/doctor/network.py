"""Reachability of registries, package sources and git repositories.

All endpoints are probed at once, each for `TIMEOUT_SECONDS`, so that a dead network costs seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeVar

from ftbuild import registry
from ftbuild.config.bases import LocalBase
from ftbuild.config.schema import Config, Repository
from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import git, shell
from ftbuild.host.redaction import redact
from ftbuild.sources.debian import archive

TIMEOUT_SECONDS = 5.0
# Name resolution has no timeout of ours: a later answer is reported as none.
PATIENCE_SECONDS = TIMEOUT_SECONDS + 2.0
# pip's default index.
PYPI = "https://pypi.org/simple/pip/"
NETWORK_HINT = (
    "check network, HTTPS_PROXY and, behind a proxy that inspects TLS, SSL_CERT_FILE and REQUESTS_CA_BUNDLE"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint:
    """Something on a network, how to probe it (`ask` raises HostError), and advice when it is silent."""

    name: str
    address: str
    ask: Callable[[], None]
    hint: str


@dataclass(frozen=True)
class Probe:
    """The result of probing an endpoint: no problem, or one in a few words."""

    target: Endpoint
    problem: str | None


def endpoints(config: Config) -> list[Endpoint]:
    """Return the endpoints that builds of this configuration use, each once."""
    by_address: dict[str, Endpoint] = {}
    for target in (*_bases(config), *_sources(config)):  # sources of a cell and of a server may share one
        by_address.setdefault(target.address, target)
    return list(by_address.values())


def start(tasks: Mapping[str, Callable[[], T]]) -> dict[str, Future[T]]:
    """Run all tasks at once, in daemon threads: the process must not wait for a silent host at its end."""
    running: dict[str, Future[T]] = {}
    for name, task in tasks.items():
        future = running[name] = Future()
        Thread(target=_run, args=(future, task), name=name, daemon=True).start()
    return running


def ask(targets: list[Endpoint]) -> Callable[[], list[Probe]]:
    """Start probing; the returned function waits for the results, at most `PATIENCE_SECONDS`."""
    running = start({str(number): target.ask for number, target in enumerate(targets)})

    def collect() -> list[Probe]:
        wait(running.values(), PATIENCE_SECONDS)
        return [Probe(target, _problem(running[str(number)])) for number, target in enumerate(targets)]

    return collect


def _run(future: Future[T], task: Callable[[], T]) -> None:
    try:
        future.set_result(task())
    except BaseException as error:  # raised where the result is read
        future.set_exception(error)


def _problem(future: Future[None]) -> str | None:
    if not future.done():
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    try:
        future.result()
    except FtbuildError as silent:
        return silent.what
    return None


def _bases(config: Config) -> Iterator[Endpoint]:
    for name, base in config.bases.bases.items():
        if base.image:
            image = base.image.format(release=base.releases[-1])
            hint = f"only for base {name}: {NETWORK_HINT}; or `docker load` its image"
            yield _registry(image, hint)
        if base.local:
            if base.local.os_image:
                hint = "only where debootstrap cannot make the operating system"
                yield _registry(base.local.os_image, hint)
            yield from _packages(base.local, f"needed to build base {name}: {NETWORK_HINT}")


def _registry(image: str, hint: str) -> Endpoint:
    host = registry.parse(image).host
    return Endpoint("registry", host, partial(_ask_registry, image), hint)


def _packages(base: LocalBase, hint: str) -> Iterator[Endpoint]:
    suite = base.debian.suite
    indexes = {
        "Debian packages": f"{archive.mirror('debian')}/dists/{suite}/Release",
        "Debian security updates": f"{archive.mirror('debian-security')}/dists/{suite}-security/Release",
        "PyPI": PYPI,
    }
    for name, url in indexes.items():
        yield Endpoint(name, redact(url), partial(_ask_http, url), hint)


def _sources(config: Config) -> Iterator[Endpoint]:
    for name, repository in config.sources.repositories.items():
        yield from _repository(config, name, repository)


def _repository(config: Config, name: str, repository: Repository) -> Iterator[Endpoint]:
    hint = f"{NETWORK_HINT}; without internet: invoke build --sources FILE"
    if repository.mirrors:
        hint = f"the other addresses of this source are tried as well; {hint}"
    for written in (repository.url, *repository.mirrors):
        url = config.git_url(written)
        yield Endpoint(f"source {name}", redact(url), partial(_ask_git, url), hint)


def _ask_registry(image: str) -> None:
    try:
        registry.require_reachable(image, purpose="doctor", hint="")
    except HostError as silent:
        raise HostError((silent.where or silent.what).rpartition(": ")[2]) from silent


def _ask_http(url: str) -> None:
    import requests

    try:
        requests.head(url, timeout=TIMEOUT_SECONDS, allow_redirects=True).raise_for_status()
    except requests.HTTPError as refused:
        raise HostError(f"status {refused.response.status_code}") from refused
    except requests.RequestException as silent:
        raise HostError(type(silent).__name__) from silent


def _ask_git(url: str) -> None:
    try:
        git.git("ls-remote", "--exit-code", git.REMOTE, "HEAD", env=git.remote(url))
    except shell.CommandFailed as silent:
        reason = re.sub(r"^fatal: (unable to access '.*?': )?", "", git.last_line(silent))
        raise HostError(reason) from silent

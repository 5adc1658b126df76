"""Real registries on loopback: open, behind a password, a token server or a failing proxy.

Docker Engine does not check certificates of registries in 127.0.0.0/8, so it pushes to all of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme

from testing import needs
from testing.faults import Faults, proxy
from testing.tokens import ISSUER, SERVICE, TokenServer, serve
from testing.waiting import listens, until_up

# Small images need no disk, on which the registry waits for each blob.
_MEMORY: dict[str, Any] = {"inmemory": {}}
_DELETING = {"delete": {"enabled": True}}
USER, PASSWORD, IDENTITY_TOKEN = "ada", "correct horse", "identity-of-ada"
LOOPBACK = "127.0.0.1"
LOG = "registry.log"


@dataclass(frozen=True)
class Registry:
    """A running registry, and the settings with which a child process uses it.

    `config` is a folder with valid credentials (DOCKER_CONFIG); `faults` and `tokens` control a proxy or a
    token server.
    """

    host: str
    config: Path
    ca: Path | None = None
    faults: Faults | None = None
    tokens: TokenServer | None = None

    @property
    def prefix(self) -> str:
        """Return host and path for `--registry`."""
        return f"{self.host}/team"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that point a child process to the credentials and the CA."""
        trusted = {"REQUESTS_CA_BUNDLE": str(self.ca), "SSL_CERT_FILE": str(self.ca)} if self.ca else {}
        return {"DOCKER_CONFIG": str(self.config), **trusted}

    @property
    def proxy_faults(self) -> Faults:
        """Return the faults of the proxy in front of it."""
        assert self.faults is not None
        return self.faults

    def login(self, entry: Mapping[str, str]) -> None:
        """Store other credentials in the docker configuration; see `password` and `identity`."""
        (self.config / "config.json").write_text(json.dumps({"auths": {self.host: dict(entry)}}))

    def logout(self) -> None:
        """Remove all credentials from the docker configuration."""
        (self.config / "config.json").write_text(json.dumps({"auths": {}}))

    def change_password(self, secret: str) -> None:
        """Change the password of `ada` (the registry reads the file again when it changes)."""
        write_password(self.config.parent, secret)


def named(tags: Iterable[str]) -> list[str]:
    """Return tags without those that list referrers (distribution-spec v1.1, Referrers Tag Schema)."""
    return [tag for tag in tags if not re.fullmatch("sha256-[0-9a-f]{64}", tag)]


def password(user: str = USER, secret: str = PASSWORD) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{secret}".encode()).decode()}


def identity(token: str = IDENTITY_TOKEN) -> dict[str, str]:
    return {
        "auth": base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode(),
        "identitytoken": token,
    }


@contextmanager
def plain(folder: Path, *, on_disk: bool = False) -> Iterator[Registry]:
    """Start a registry with HTTP and without authentication; `on_disk` for images of real size."""
    (folder / "docker").mkdir(parents=True)
    with _running(folder, on_disk_below(folder) if on_disk else {}) as host:
        registry = Registry(host, folder / "docker")
        registry.logout()
        yield registry


def on_disk_below(folder: Path) -> dict[str, Any]:
    """Return the settings of a registry that keeps its blobs in files."""
    return {"storage": {"filesystem": {"rootdirectory": str(folder / "storage")}, **_DELETING}}


@contextmanager
def basic(folder: Path, name: str = LOOPBACK) -> Iterator[Registry]:
    """Start a registry with TLS, its own CA, user and password."""
    (folder / "docker").mkdir(parents=True)
    write_password(folder, PASSWORD)
    ca = trustme.CA()
    settings = {
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}},
        "http": _tls(ca, folder, name),
    }
    with _running(folder, settings, name) as host:
        registry = Registry(host, folder / "docker", ca=folder / "ca.pem")
        registry.login(password())
        yield registry


@contextmanager
def tokens(folder: Path, name: str = LOOPBACK) -> Iterator[Registry]:
    """Start a registry with TLS and a token server for one user (`registry.tokens.lifetime` in seconds)."""
    (folder / "docker").mkdir(parents=True)
    ca = trustme.CA()
    http = _tls(ca, folder, name)
    signer = ca.issue_cert("signer.example", key_type=trustme.KeyType.RSA)
    with serve(TokenServer(USER, PASSWORD, IDENTITY_TOKEN, signer), ca.issue_cert("127.0.0.1")) as server:
        auth = {
            "realm": server.realm,
            "service": SERVICE,
            "issuer": ISSUER,
            "rootcertbundle": str(folder / "ca.pem"),
        }
        with _running(folder, {"auth": {"token": auth}, "http": http}, name) as host:
            registry = Registry(host, folder / "docker", ca=folder / "ca.pem", tokens=server)
            registry.login(password())
            yield registry


@contextmanager
def faulty(folder: Path) -> Iterator[Registry]:
    """Start a registry with HTTP behind a proxy that fails on demand."""
    (folder / "docker").mkdir(parents=True)
    with _running(folder, {}) as upstream, proxy(upstream) as (host, faults):
        registry = Registry(host, folder / "docker", faults=faults)
        registry.logout()
        yield registry


@pytest.fixture
def plain_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    yield from _used(plain(tmp_path / "plain-registry"), monkeypatch)


@pytest.fixture
def basic_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    yield from _used(basic(tmp_path / "basic-registry"), monkeypatch)


@pytest.fixture
def token_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    yield from _used(tokens(tmp_path / "token-registry"), monkeypatch)


@pytest.fixture
def faulty_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    yield from _used(faulty(tmp_path / "faulty-registry"), monkeypatch)


@pytest.fixture
def named_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Start a registry with a token server under a host name, so that buildx uses TLS too."""
    yield from _used(tokens(tmp_path / "named-registry", other_name()), monkeypatch)


def _used(start: AbstractContextManager[Registry], monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with start as registry:
        for name, value in registry.environment.items():
            monkeypatch.setenv(name, value)
        yield registry


def write_password(folder: Path, secret: str) -> None:
    hashed = bcrypt.hashpw(secret.encode(), bcrypt.gensalt(4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")


def other_name() -> str:
    """Return a name of this machine in 127.0.0.0/8 other than localhost; skip the test if it has none.

    Docker Engine goes by the address, and does not check certificates. buildx goes by the name: to localhost
    and 127.0.0.1 it speaks plain HTTP only (containerd, MatchLocalhost).
    """
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        if name != "localhost" and socket.gethostbyname(name).startswith("127."):
            return name
    pytest.skip(f"needs a name of this machine in 127.0.0.0/8 (echo 127.0.0.1 {name} >> /etc/hosts)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tls(ca: trustme.CA, folder: Path, name: str) -> dict[str, Any]:
    certificate = ca.issue_cert(name)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return {"tls": {"certificate": str(folder / "server.pem"), "key": str(folder / "server.pem")}}


@contextmanager
def _running(folder: Path, settings: Mapping[str, Any], name: str = LOOPBACK) -> Iterator[str]:
    """Start a registry on a port of `name`, and stop it at the end."""
    argv, host = configured(folder, settings, name)
    with (folder / LOG).open("w") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        until_up(server, lambda: answers(host), folder / LOG)
        yield host
    finally:
        server.terminate()
        server.wait(100)


def configured(folder: Path, settings: Mapping[str, Any], name: str = LOOPBACK) -> tuple[list[str], str]:
    """Return the command of a registry with these settings, and the port of `name` on which it will answer.

    It is that of the project "distribution", as Debian packages it.
    """
    program = needs.program("docker-registry")
    address, port = socket.gethostbyname(name), free_port()
    file = folder / "registry.yml"
    storage = {**_MEMORY, **_DELETING}
    http = {"addr": f"{address}:{port}", **settings.get("http", {})}
    whole = {"version": "0.1", "log": {"level": "error"}, "storage": storage, **settings, "http": http}
    file.write_text(json.dumps(whole))  # JSON is YAML
    return [program, "serve", str(file)], f"{name}:{port}"


def answers(host: str) -> bool:
    """Return whether a registry, or another server, accepts connections at `NAME:PORT`."""
    name, _, port = host.rpartition(":")
    return listens(name, int(port))

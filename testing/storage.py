"""Debian's Redis on the engine's bridge, where the steps of a build can reach it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testing.waiting import listens, until

if TYPE_CHECKING:
    import docker

PROGRAM = "redis-server"
PASSWORD = "sesame"


def bridge(client: docker.DockerClient) -> str:
    """Return this machine's address in the default network of containers and build steps."""
    address: str = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    return address


@contextlib.contextmanager
def redis(client: docker.DockerClient, folder: Path) -> Iterator[str]:
    """Start a server without persistence; yield its URL for ccache (ccache(1), Redis storage backend)."""
    host = bridge(client)
    with socket.create_server((host, 0)) as unused:
        port = unused.getsockname()[1]
    options = {"port": port, "bind": host, "requirepass": PASSWORD, "save": "", "dir": folder}
    argv = [PROGRAM, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as server:
        try:
            assert until(lambda: listens(host, port))
            yield f"redis://{PASSWORD}@{host}:{port}"
        finally:
            server.terminate()

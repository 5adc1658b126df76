"""Further Docker Engines on this machine, each with data, address and network of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from ftbuild.host import shell
from testing import needs
from testing.registries import LOOPBACK, free_port
from testing.waiting import until_up


@dataclass
class Engine:
    """A running engine: its address (DOCKER_HOST), its folder (certificates are there too), its process."""

    name: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    def add_context(self, name: str, configuration: Path) -> None:
        """Make a docker context for it in a folder of Docker's configuration (DOCKER_CONFIG)."""
        keys = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
        parts = [f"host={self.address}", *(f"{key}={self.folder / keys[key]}" for key in keys)]
        shell.run(
            ["docker", "context", "create", name, "--docker", ",".join(parts)],
            env={"DOCKER_CONFIG": str(configuration), "DOCKER_HOST": None},
        )

    def die(self) -> None:
        """Kill the engine with everything that runs in it, as the power cut of its host would."""
        self.process.kill()
        self.process.wait()
        for process in _members(self.name):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """End the engine, if it runs, as its host would that goes down."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def restart(self) -> None:
        """End the engine, and start it on its data."""
        self.stop()
        self.process = _start(self.folder)
        _wait(self)


@contextmanager
def engine(folder: Path, name: str, network: str, *, tls: bool = False, **settings: Any) -> Iterator[Engine]:
    """Start an engine; `name` also names its bridge, `network` is the bridge's address.

    With `tls` it listens on a port of loopback, else on a socket. `settings` are those of daemon.json. Skips
    the test where no engine can be started.
    """
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("needs dockerd and root, for a second engine")
    needs.program("ip", "iproute2")
    folder.mkdir(parents=True, exist_ok=True)
    address = f"tcp://{LOOPBACK}:{free_port()}" if tls else f"unix://{folder}/docker.sock"
    keys = _keys(folder) if tls else {}
    shell.run(["ip", "link", "delete", name], check=False)  # that of a run which was killed
    # An engine without a bridge would take docker0 away, on which the other one's containers hang.
    shell.run(["ip", "link", "add", "name", name, "type", "bridge"])
    shell.run(["ip", "address", "add", network, "dev", name])
    written = {
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/pid",
        "hosts": [address],
        "bridge": name,
        "iptables": False,
        "cgroup-parent": f"/{name}",
        **keys,
        **settings,
    }
    (folder / "daemon.json").write_text(json.dumps(written))
    started = Engine(name, address, folder, _start(folder))
    try:
        _wait(started)
        yield started
    finally:
        started.stop()
        started.die()
        _unmount(folder)
        shell.run(["ip", "link", "delete", name])
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("a") as log:
        argv = ["dockerd", "--config-file", str(folder / "daemon.json")]
        return subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)


def _wait(started: Engine) -> None:
    until_up(started.process, lambda: _answers(started), started.folder / "log")


def _keys(folder: Path) -> dict[str, Any]:
    """Make a CA, and certificates of the engine and of its clients, under the names that docker expects."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for prefix, identity in (("server-", LOOPBACK), ("", "client")):
        made = ca.issue_cert(identity)
        made.private_key_pem.write_to_path(folder / f"{prefix}key.pem")
        made.cert_chain_pems[0].write_to_path(folder / f"{prefix}cert.pem")
    server = {"tlscert": str(folder / "server-cert.pem"), "tlskey": str(folder / "server-key.pem")}
    return {"tlsverify": True, "tlscacert": str(folder / "ca.pem"), **server}


def _answers(started: Engine) -> bool:
    tls = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(started.folder)}
    env = tls if started.address.startswith("tcp") else {}
    return (
        shell.run(["docker", "--host", started.address, "version"], check=False, env=env, timeout=20).code
        == 0
    )


def _members(group: str) -> Iterator[int]:
    """Yield the processes in the control group of an engine."""
    for found in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):
            if f"/{group}/" in found.read_text():
                yield int(found.parent.name)


def _unmount(folder: Path) -> None:
    """Unmount what a killed engine has left below a folder, the last mount first."""
    rows = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([row[4] for row in rows if row[4].startswith(f"{folder}/")]):
        shell.run(["umount", "--lazy", point], check=False)

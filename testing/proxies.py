"""nginx in front of a server, with the lines of a documentation page."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
import trustme

from testing import ROOT, needs
from testing.registries import free_port
from testing.waiting import until_up

PAGE = ROOT / "docs" / "security.md"
# Where nginx keeps bodies that do not fit into memory; its own folders belong to the system.
_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def recipe() -> tuple[str, str]:
    """Return the page's configuration, and its lines for certificates of clients."""
    whole, certificates = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return whole, certificates


@dataclass(frozen=True)
class Proxy:
    """A running proxy, and the CA of its certificate."""

    address: str
    ca: Path

    def ask(self, method: str, path: str, body: object = None, **more: object) -> requests.Response:
        """Return what it answers; `more` is for requests."""
        session = requests.Session()
        session.trust_env = False
        # As it stands: requests would resolve `..` itself.
        request = session.prepare_request(requests.Request(method, f"https://{self.address}/", json=body))
        request.url = f"https://{self.address}{path}"
        headers = more.pop("headers", {})
        assert isinstance(headers, Mapping)
        request.headers.update(headers)
        return session.send(request, verify=str(self.ca), timeout=20, **more)  # type: ignore[arg-type]


@contextmanager
def running(folder: Path, text: str, http: str, grpc: str, files: Mapping[str, str]) -> Iterator[Proxy]:
    """Start nginx with `text`, a configuration for a server at `http` and `grpc` (host:port).

    What lies below /etc/nginx on the page lies in `folder` here: `files` by name, and the certificate.
    """
    program = needs.program("nginx")
    ca = trustme.CA()
    served = ca.issue_cert("localhost")
    (folder / "tls").mkdir(parents=True)
    served.private_key_pem.write_to_path(folder / "tls/key.pem")
    for number, part in enumerate(served.cert_chain_pems):
        part.write_to_path(folder / "tls/fullchain.pem", append=number > 0)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, content in files.items():
        (folder / name).write_text(content)
    address = f"localhost:{free_port()}"
    changes = {
        "/etc/nginx": str(folder),
        "listen 443 ": f"listen 127.0.0.1:{address.rpartition(':')[2]} ",
        "127.0.0.1:8000": http,
        "127.0.0.1:8001": grpc,
    }
    for old, new in changes.items():
        assert old in text, f"{PAGE} no longer has {old}"
        text = text.replace(old, new)
    (folder / "models.conf").write_text(text)
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in _FOLDERS)
    user = "user root;\n" if os.geteuid() == 0 else ""  # the folder is the test's alone
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder}/models.conf;\n}}\n"
    )
    with (folder / "log").open("w") as log:
        command = [program, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        # nginx takes its ports before it writes its id.
        until_up(process, (folder / "pid").exists, folder / "log")
        yield Proxy(address, folder / "ca.pem")
    finally:
        process.terminate()
        process.wait(100)

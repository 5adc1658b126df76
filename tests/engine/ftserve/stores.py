"""Servers of object storage with a bucket `models`, real and misbehaving.

Those of S3 and of Google's protocol are programs of PyPI on this machine. Neither asks for credentials, nor
does it break: what stands `between` them and a client does.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import requests

from ftserve import stored
from testing import tokens
from testing.waiting import listens, until_up
from tests.engine.ftserve.clients import environments
from tests.engine.ftserve.clients.table import Client

BUCKET, FOLDER = "models", "gptj"
TOKEN = "of-a-service-account"
# Moto believes everybody, but lets only somebody change what is there. Everybody may read it.
_OWNER = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=ada/20260101/us-east-1/s3/aws4_request, Signature=0",
    "x-amz-acl": "public-read",
}
# The server's command line, without address, and where it answers before it has anything.
_SERVERS = {
    "s3": (Client("moto", "moto", "moto", ""), ("-m", "moto.server"), "/moto-api/"),
    "gs": (
        Client("gcp-storage-emulator", "gcp-storage-emulator", "gcp-storage-emulator", ""),
        ("-m", "gcp_storage_emulator", "start", "--in-memory"),
        "/storage/v1/b",
    ),
}


@dataclass(frozen=True)
class Store:
    """A server of object storage: the scheme of its URIs, where it is, and whether it is public."""

    scheme: str
    url: str
    anonymous: bool = False

    def renew(self, files: Mapping[str, bytes]) -> None:
        """Forget everything, and take files into `models/gptj`."""
        if self.scheme == "s3":
            requests.post(f"{self.url}/moto-api/reset", timeout=60).raise_for_status()
            requests.put(f"{self.url}/{BUCKET}", timeout=60).raise_for_status()
        else:
            requests.get(f"{self.url}/wipe", timeout=60).raise_for_status()
            made = requests.post(f"{self.url}/storage/v1/b", json={"name": BUCKET}, timeout=60)
            made.raise_for_status()
        for name, content in files.items():
            self.put(name, content)

    def put(self, name: str, content: bytes) -> None:
        """Write an object into the repository."""
        key = f"{FOLDER}/{name}"
        if self.scheme == "s3":
            where = f"{self.url}/{BUCKET}/{quote(key)}"
            requests.put(where, data=content, headers=_OWNER, timeout=60).raise_for_status()
            return
        where = f"{self.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}"
        requests.post(where, data=content, timeout=60).raise_for_status()

    def delete(self, name: str) -> None:
        """Delete an object of the repository."""
        key = f"{FOLDER}/{name}"
        path = f"/{BUCKET}/{quote(key)}"
        if self.scheme == "gs":
            path = f"/storage/v1/b/{BUCKET}/o/{quote(key, safe='')}"
        requests.delete(f"{self.url}{path}", headers=_OWNER, timeout=60).raise_for_status()

    def where(self, place: str = f"{BUCKET}/{FOLDER}", fetcher: str = "rclone") -> stored.Stored:
        """Return what the options of a deployment say of a place in it."""
        return stored.parse(f"{self.scheme}://{place}", fetcher, self.url, anonymous=self.anonymous)

    def is_download(self, asked: Asked, name: str) -> bool:
        """Tell whether a request is for the content of an object."""
        path = urlsplit(asked.path).path
        return asked.method == "GET" and name in path and (self.scheme == "s3" or "/download/" in path)


@contextmanager
def running(scheme: str, host: str, log: Path) -> Iterator[Store]:
    """Start a server on an address of this machine."""
    client, module, answers = _SERVERS[scheme]
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    address = ["-H", host, "-p", str(port)] if scheme == "s3" else [f"--host={host}", f"--port={port}"]
    with log.open("w") as file:
        argv = [environments.interpreter(client), *module, *address]
        own = {**os.environ, "TMPDIR": str(log.parent)}
        server = subprocess.Popen(argv, env=own, stdout=file, stderr=file)
    try:
        # Google's protocol without credentials is that of a public bucket.
        store = Store(scheme, f"http://{host}:{port}", anonymous=scheme == "gs")
        # Not only that the port is taken: another test's server may have been faster.
        until_up(
            server,
            lambda: listens(host, port) and requests.get(f"{store.url}{answers}", timeout=60).ok,
            log,
        )
        yield store
    finally:
        server.terminate()
        server.wait(60)


@dataclass(frozen=True)
class Asked:
    """A request that is on its way to a server."""

    method: str
    path: str
    authorization: str


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = "answered"
    CUT = "the answer ends in the middle of its content"
    LOST = "the connection ends without an answer"
    DENIED = "403"


@contextmanager
def between(store: Store, decide: Callable[[Asked], Fate]) -> Iterator[Store]:
    """Stand between clients and a server, and decide about each request; give TOKEN to service accounts."""
    target = urlsplit(store.url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fate = decide(Asked(self.command, self.path, self.headers.get("Authorization", "")))
            if fate is Fate.LOST:
                self.close_connection = True
                return
            if fate is Fate.DENIED:
                self._answer(403, {}, b"")
                return
            server = http.client.HTTPConnection(target, timeout=60)
            server.request(self.command, self.path, headers=dict(self.headers))
            answer = server.getresponse()
            content = answer.read()
            if answer.headers.get_content_type() == "application/json":
                # Google's protocol says where the content of an object is.
                content = content.replace(target.encode(), address.encode())
                answer.headers.replace_header("Content-Length", str(len(content)))
            self._answer(answer.status, dict(answer.headers), content, whole=fate is not Fate.CUT)
            server.close()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(token).encode())

        def _answer(
            self, status: int, headers: Mapping[str, str], content: bytes, *, whole: bool = True
        ) -> None:
            self.send_response_only(status)
            size = {"Content-Length": str(len(content))}
            for name, value in {**size, **headers}.items():
                if name.lower() not in ("transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content if whole else content[: len(content) // 2])
            self.close_connection = not whole

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"127.0.0.1:{server.server_port}"
    with tokens.running(server):
        yield replace(store, url=f"http://{address}")

"""A registry that answers as it is told."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testing.tokens import running

MANIFEST_TYPE = "application/vnd.oci.image.index.v1+json"
_IMAGE = "sha256:" + "7" * 64
# What an index of ours has: an image, and attestations about it.
PAIR = [
    {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": _IMAGE,
        "size": 7,
        "platform": {"architecture": "amd64", "os": "linux"},
    },
    {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": "sha256:" + "8" * 64,
        "size": 7,
        "platform": {"architecture": "unknown", "os": "unknown"},
        "annotations": {
            "vnd.docker.reference.type": "attestation-manifest",
            "vnd.docker.reference.digest": _IMAGE,
        },
    },
]


@dataclass
class Answers:
    """The answer to every request, and the requests; `where` answers differently below a path.

    `seen` are method, path and login of each request, `sent` its headers and its body.
    """

    host: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    where: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    sent: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def give(self, body: object, status: int = 200, /, **headers: str) -> None:
        """Answer every request with this body, as JSON unless it is bytes."""
        self.status, self.headers = status, {"Content-Type": MANIFEST_TYPE}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        return next(
            (given for part, given in self.where.items() if part in f"{method} {path}"),
            (self.status, self.headers, self.body),
        )


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Answers]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers.sent.append((dict(self.headers), body))
            answers.seen.append((self.command, self.path, self.headers.get("Authorization")))
            status, headers, body = answers.answer(self.command, self.path)
            self.send_response_only(status)
            for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
                if name != "Content-Length" or value:  # without it, the body ends with the connection
                    self.wfile.write(f"{name}: {value}\r\n".encode("latin-1", "replace"))
            self.wfile.write(b"\r\n")
            if self.command != "HEAD":
                self.wfile.write(body)
            self.close_connection = True

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = reply  # noqa: N815

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                self.close_connection = True  # the client has seen enough

        def send_response_only(self, code: int, message: str | None = None) -> None:
            self.wfile.write(f"HTTP/1.1 {code} as told\r\n".encode())

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """Say nothing about clients that go away."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with running(server):
        answers.host = f"127.0.0.1:{server.server_address[1]}"
        yield answers

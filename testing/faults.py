"""A reverse proxy in front of a registry that fails on demand, and records its requests."""

from __future__ import annotations

import http.client
import re
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from testing.tokens import running

_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")
PIECE_BYTES = 1 << 20


@dataclass
class Fault:
    """A failure of the next `times` requests that match `METHOD /path`."""

    match: str
    times: int
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    keep: float | None = None


@dataclass
class Faults:
    """The faults and the requests, as `METHOD /path`; those in `logged_in` had an Authorization."""

    seen: list[str] = field(default_factory=list)
    logged_in: list[str] = field(default_factory=list)
    pending: list[Fault] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def answer(self, match: str, status: int, *, times: int = 1, body: bytes = b"", **headers: str) -> None:
        """Answer the next matching requests with `status`; headers are given like `Retry_After="1"`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pending.append(Fault(match, times, status, named, body))

    def cut(self, match: str, *, keep: float = 0.0, times: int = 1) -> None:
        """Forward the next matching requests, but cut the answer's body after the share `keep`.

        With `keep` 0, not even the status is sent.
        """
        self.pending.append(Fault(match, times, keep=keep))

    def replace(self, match: str, body: bytes, *, times: int = 1, **headers: str) -> None:
        """Answer the next matching requests with 200 and this body."""
        self.answer(match, 200, times=times, body=body, **headers)

    def count(self, match: str) -> int:
        """Return the number of matching requests."""
        return sum(bool(re.search(match, line)) for line in self.seen)

    def take(self, line: str, authorization: str | None) -> Fault | None:
        """Record a request; return the fault that applies to it, if any."""
        with self.lock:
            self.seen.append(line)
            self.logged_in += [line] if authorization else []
            for fault in self.pending:
                if fault.times and re.search(fault.match, line):
                    fault.times -= 1
                    return fault
        return None


@contextmanager
def proxy(upstream: str) -> Iterator[tuple[str, Faults]]:
    """Start a proxy in front of the registry at `upstream`; yield its `host:port` and its faults."""
    faults = Faults()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def forward(self) -> None:
            fault = faults.take(f"{self.command} {self.path}", self.headers.get("Authorization"))
            if fault and fault.status:
                deque(self.received(), maxlen=0)
                self.send(fault.status, dict(fault.headers), fault.body or b"")
                return
            connection = http.client.HTTPConnection(upstream, timeout=60)
            try:
                connection.request(
                    self.command,
                    self.path,
                    self.received(),
                    {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "keep-alive")},
                    encode_chunked=self.is_chunked(),
                )
                answer = connection.getresponse()
                kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
                self.send(answer.status, kept, answer.read(), fault.keep if fault else None)
            finally:
                connection.close()

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815

        def is_chunked(self) -> bool:
            return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

        def received(self) -> Iterator[bytes]:
            """Yield the body piece by piece, since a layer may be large."""
            if self.is_chunked():
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            left = int(self.headers.get("Content-Length", 0))
            while left > 0 and (piece := self.rfile.read(min(left, PIECE_BYTES))):
                left -= len(piece)
                yield piece

        def send(self, status: int, headers: dict[str, str], body: bytes, keep: float | None = None) -> None:
            if keep != 0:
                self.send_response_only(status)
                headers.setdefault("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if keep is None else body[: int(len(body) * keep)])
            if keep is not None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

        def log_message(self, *args: Any) -> None:
            """Log nothing: tests look at `seen`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(server):
        yield f"127.0.0.1:{server.server_address[1]}", faults

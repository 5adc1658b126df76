"""A web server for files, with ranges, logins and answers that break off."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from testing.tokens import running


@dataclass
class Web:
    """Contents by path, the requests as `PATH RANGE`, and after how many bytes the next answers end."""

    url: str = ""
    contents: dict[str, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    login: str = ""

    def add(self, path: str, content: bytes) -> str:
        """Serve `content`; return its URL."""
        self.contents[path] = content
        return f"{self.url}{path}"

    def add_index(self, root: str, wheels: Mapping[str, bytes], *, hashed: bool = True) -> str:
        """Serve wheels by file name as a package index (PEP 503); return its URL."""
        pages: dict[str, str] = {}
        for name, content in wheels.items():
            project = re.sub(r"[-_.]+", "-", name.split("-")[0]).lower()
            anchor = f"#sha256={hashlib.sha256(content).hexdigest()}" if hashed else ""
            pages[project] = pages.get(project, "") + f'<a href="/{root}/files/{name}{anchor}">{name}</a><br>'
            self.add(f"/{root}/files/{name}", content)
        for project, links in pages.items():
            self.add(
                f"/{root}/simple/{project}/", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
            )
        return f"{self.url}/{root}/simple"


@contextmanager
def serving() -> Iterator[Web]:
    """Start a server on this machine."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            web.seen.append(f"{self.path} {wanted}".strip())
            content = web.contents.get(self.path)
            expected = f"Basic {base64.b64encode(web.login.encode()).decode()}"
            if web.login and self.headers.get("Authorization") != expected:
                self.answer(401, b"", **{"WWW-Authenticate": 'Basic realm="files"'})
            elif content is None:
                self.answer(404, b"")
            elif match := re.fullmatch(r"bytes=(\d+)-", wanted):
                rest = content[int(match[1]) :]
                self.answer(206 if rest else 416, rest)
            else:
                self.answer(200, content)

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            kind = "text/html" if body.startswith(b"<!DOCTYPE") else "application/octet-stream"
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if status < 300 and web.cut:
                self.wfile.write(body[: web.cut.pop(0)])
                self.close_connection = True
            else:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{http.server_port}"
    with running(http):
        yield web


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Start a server that answers every request with these bytes; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(http):
        yield f"http://127.0.0.1:{http.server_port}"

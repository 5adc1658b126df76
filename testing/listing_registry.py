"""A registry that lists referrers (distribution-spec v1.1), in front of one that does not."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

from testing.tokens import running

_LIST = re.compile(r"/v2/(?P<name>.+)/referrers/(?P<digest>sha256:[0-9a-f]{64})")
_MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/.+")
_INDEX = "application/vnd.oci.image.index.v1+json"
_OWN = {"connection", "content-length", "transfer-encoding", "date", "host"}


@contextmanager
def listing(upstream: str) -> Iterator[str]:
    """Yield the host of a registry with the content of another one, and with lists of what it is sent."""
    known: dict[tuple[str, str], list[dict[str, Any]]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if (wanted := _LIST.fullmatch(self.path.partition("?")[0])) and self.command == "GET":
                listed = known.get((wanted["name"], wanted["digest"]), [])
                content = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed}
                self.answer(200, {"Content-Type": _INDEX}, json.dumps(content).encode())
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            found = requests.request(
                self.command,
                f"http://{upstream}{self.path}",
                headers=headers,
                data=body,
                allow_redirects=False,
                timeout=60,
            )
            more = {k: v.replace(upstream, self.headers["Host"]) for k, v in found.headers.items()}
            if self.command == "PUT" and found.status_code == 201 and (at := _MANIFEST.fullmatch(self.path)):
                more |= self.note(at["name"], body)
            self.answer(found.status_code, more, found.content)

        def note(self, name: str, body: bytes) -> dict[str, str]:
            content = json.loads(body)
            if "subject" not in content:
                return {}
            subject = content["subject"]["digest"]
            entry = {
                "mediaType": content["mediaType"],
                "digest": f"sha256:{hashlib.sha256(body).hexdigest()}",
                "size": len(body),
                "artifactType": content.get("artifactType") or content["config"]["mediaType"],
                "annotations": content.get("annotations", {}),
            }
            listed = known.setdefault((name, subject), [])
            if entry not in listed:
                listed.append(entry)
            return {"OCI-Subject": subject}

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = pass_on  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(server):
        yield f"127.0.0.1:{server.server_address[1]}"

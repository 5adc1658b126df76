"""A small token server for a real registry (docs.docker.com/registry/spec/auth/token)."""

from __future__ import annotations

import base64
import json
import math
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

ISSUER, SERVICE = "tests", "registry"
# The registry still accepts a token this long after its expiry (docker/distribution 2.8, token.Leeway).
LEEWAY_SECONDS = 60


@dataclass
class TokenServer:
    """The known user, the lifetime of tokens in whole seconds, and the granted scopes."""

    user: str
    password: str
    identity_token: str
    signer: trustme.LeafCert
    lifetime: float = 300.0
    realm: str = ""
    granted: list[str] = field(default_factory=list)

    def token(self, user: str, scopes: list[str]) -> str:
        """Return a JWT with the requested scopes; without any for an anonymous user."""
        now = time.time()
        claims = {
            "iss": ISSUER,
            "sub": user,
            "aud": SERVICE,
            "exp": math.ceil(now + self.lifetime - LEEWAY_SECONDS),
            "nbf": int(now - LEEWAY_SECONDS),
            "iat": int(now),
            "jti": uuid.uuid4().hex,
            "access": [_access(scope) for scope in scopes] if user else [],
        }
        chain = [load_pem_x509_certificate(pem.bytes()) for pem in self.signer.cert_chain_pems]
        x5c = [base64.b64encode(cert.public_bytes(Encoding.DER)).decode() for cert in chain]
        text = ".".join(_segment(json.dumps(part).encode()) for part in (_header(x5c), claims))
        key = load_pem_private_key(self.signer.private_key_pem.bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return f"{text}.{_segment(key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"

    def user_of(self, authorization: str) -> str | None:
        """Return the user of an Authorization header: empty for an anonymous one, None if it is invalid."""
        if not authorization:
            return ""
        pair = base64.b64decode(authorization.partition(" ")[2]).decode()
        return self.user if pair == f"{self.user}:{self.password}" else None


@contextmanager
def serve(server: TokenServer, certificate: trustme.LeafCert) -> Iterator[TokenServer]:
    """Serve on a port of 127.0.0.1, over TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            self.give(server.user_of(self.headers.get("Authorization", "")), query.get("scope", []))

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            known = form.get("refresh_token") == [server.identity_token]
            self.give(server.user if known else None, form.get("scope", []))

        def give(self, user: str | None, scopes: list[str]) -> None:
            if user is not None:
                server.granted += scopes
            body = json.dumps({"token": server.token(user, scopes)} if user is not None else {}).encode()
            self.send_response(401 if user is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing: tests print what they need."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    http.socket = context.wrap_socket(http.socket, server_side=True)
    server.realm = f"https://127.0.0.1:{http.server_address[1]}/token"
    with running(http):
        yield server


@contextmanager
def running(http: ThreadingHTTPServer) -> Iterator[None]:
    """Serve in a thread until the block ends."""
    http.daemon_threads = True
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _header(x5c: list[str]) -> dict[str, Any]:
    return {"typ": "JWT", "alg": "RS256", "x5c": x5c}


def _access(scope: str) -> dict[str, Any]:
    kind, name, actions = scope.split(":")
    return {"type": kind, "name": name, "actions": actions.split(",")}


def _segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

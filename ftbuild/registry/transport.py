"""HTTP to registries: schemes, redirects, limits of size and time, errors when nothing answers."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from ftbuild import __version__
from ftbuild.errors import HostError
from ftbuild.registry import address
from ftbuild.registry.address import bare, is_loopback
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.policy import POLICY
from ftbuild.text import terminal

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
# A registry may take long to store a manifest of an image with large layers.
ANSWER_SECONDS = 60.0
CONNECTIONS = 16
# A body that breaks off comes too late for the retries of the connection.
BODY_TRIES = 3
# The maximum of a token, an error or a confirmation; callers that expect more say so.
ANSWER_BYTES = 1 << 20
PIECE_BYTES = 1 << 16
REDIRECTS = 5
_REDIRECTING = (301, 302, 303, 307, 308)
_READING = ("GET", "HEAD")


@dataclass(frozen=True)
class Answer:
    """An answer of a server to `method` at `url`, read to its end; names of `headers` in any case."""

    method: str
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def next_page(self) -> str | None:
        """Return where a Link header says that the next page is (RFC 8288), if it does."""
        from requests.utils import parse_header_links

        links = parse_header_links(self.headers.get("Link", ""))
        return next((link["url"] for link in links if link.get("rel") == "next"), None)


class Transport:
    """Connections to registries, kept open and shared by threads; closed when it is no longer referred to.

    Without `patient` nothing is tried again. TLS is checked against REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or
    SSL_CERT_FILE, whichever is set first.
    """

    def __init__(self, *, patient: bool = True) -> None:
        import requests
        from requests.adapters import HTTPAdapter

        from ftbuild.registry.retry import patience

        self._http = requests.Session()
        # `send` follows redirects itself; requests looks at them even then, and fails at odd addresses.
        self._http.get_redirect_target = lambda resp: None  # type: ignore[method-assign]
        # Digests and sizes are of what is stored, not of what a server in between compressed.
        self._http.headers.update({"User-Agent": f"ftbuild/{__version__}", "Accept-Encoding": "identity"})
        self._http.verify = os.environ.get("SSL_CERT_FILE") or True
        for scheme in ("https://", "http://"):
            retries = patience(POLICY) if patient else 0
            self._http.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS, max_retries=retries))
        self._answer_seconds = ANSWER_SECONDS if patient else CONNECT_SECONDS
        self._body_tries = BODY_TRIES if patient else 1
        self._roots: dict[str, str] = {}
        self._lock = Lock()

    def api(self, host: str) -> str:
        """Return the root of a registry's API, `https://host/v2/`.

        Plain HTTP on this machine only, as Docker has it, and only where nothing speaks TLS: a certificate
        that is not trusted stays an error.
        """
        with self._lock:
            if host not in self._roots:
                plain = is_loopback(host) and not _speaks_tls(host)
                self._roots[host] = f"{'http' if plain else 'https'}://{host}/v2/"
            return self._roots[host]

    def send(
        self,
        method: str,
        url: str,
        *,
        limit: int = ANSWER_BYTES,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | IO[bytes] | None = None,
    ) -> Answer:
        """Return the answer, whatever its status; raise HostError when there is none.

        A file is sent from its beginning, at each attempt.
        A request that only reads follows redirects, and takes its login to no other server. Raises
        `Malformed` when the answer has more than `limit` bytes, or leads where nothing may be sent.
        """
        place, login = url, authorization
        for _ in range(REDIRECTS + 1):
            answer = self._answer(method, place, limit, login, headers, data)
            leads_on = method in _READING and answer.status in _REDIRECTING
            if not leads_on or "Location" not in answer.headers:
                return answer
            place = address.resolved(place, answer.headers["Location"])
            login = authorization if address.is_within(place, url) else None
        raise Malformed("a registry redirects without end", where=_shown(url))

    def _answer(
        self,
        method: str,
        url: str,
        limit: int,
        authorization: str | None,
        headers: Mapping[str, str] | None,
        data: bytes | Mapping[str, str] | IO[bytes] | None,
    ) -> Answer:
        import tenacity
        from requests.exceptions import ChunkedEncodingError
        from urllib3.exceptions import HTTPError

        def once() -> Answer:
            if isinstance(data, io.IOBase):
                data.seek(0)
            with self._http.request(
                method,
                url,
                headers=dict(headers or {}),
                data=data,
                # A callable, even where there is nothing to add: otherwise requests looks into ~/.netrc.
                auth=_adder(authorization),
                timeout=(CONNECT_SECONDS, self._answer_seconds),
                # requests would read the body of each redirect, of whatever size.
                allow_redirects=False,
                proxies=_proxies(url),
                stream=True,
            ) as answer:
                # It has to be read without a body, too, or its connection is not used again.
                body = answer.content if method == "HEAD" else _body(answer, limit)
            return Answer(method, url, answer.status_code, answer.headers, body)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ChunkedEncodingError),
            stop=tenacity.stop_after_attempt(self._body_tries),
            reraise=True,
        )
        try:
            return retrying(once)
        except (OSError, HTTPError) as silent:
            raise _unreachable(url, silent) from silent


def _body(answer: requests.Response, limit: int) -> bytes:
    """Return the body, at most `limit` bytes; `Malformed` if it has more, or if it is compressed."""
    if not answer.ok:
        limit = min(limit, ANSWER_BYTES)
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        if not answer.ok:
            return b""  # perhaps of a proxy on the way: its status says enough
        raise Malformed(
            "a registry sent a compressed answer, though it was asked not to",
            where=f"{_shown(answer.url)}: Content-Encoding {terminal.printable(encoding[:40])}",
            hint="something between here and the registry changes its answers",
        )
    too_large = Malformed(
        f"a registry sent more than the {limit} bytes that this answer may have", where=_shown(answer.url)
    )
    stated = answer.headers.get("Content-Length", "")
    if stated.isdecimal() and len(stated) < 20 and int(stated) > limit:
        raise too_large
    pieces, left = [], limit
    for piece in answer.iter_content(PIECE_BYTES):
        left -= len(piece)
        if left < 0:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


def _shown(url: str) -> str:
    return terminal.printable(bare(url)[:300])


def _speaks_tls(host: str) -> bool:
    """Return whether TLS answers at all; nothing is sent, and trust is decided later."""
    import socket
    import ssl

    address = urlsplit(f"//{host}")
    # One without roots: to load them would take longer than all else here.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((address.hostname, address.port or 443), CONNECT_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as refused:
        return "ALERT" in (refused.reason or "")  # an alert is TLS (RFC 8446, section 6)
    except OSError:
        return False
    return True


def _adder(authorization: str | None) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    def add(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization:
            request.headers["Authorization"] = authorization
        return request

    return add


def _proxies(url: str) -> dict[str, str]:
    """Return no proxy for this machine, whatever NO_PROXY is, as in Docker."""
    host = urlsplit(url).hostname or ""
    return {"no_proxy": host} if is_loopback(urlsplit(url).netloc) else {}


def _unreachable(url: str, silent: Exception) -> HostError:
    import requests

    host, where = urlsplit(url).netloc, f"{bare(url)}: {type(silent).__name__}"
    if untrusted := re.search(r"certificate verify failed: ([^(\n]+)", str(silent)):
        return HostError(
            f"the certificate of {host} is not trusted: {untrusted[1].strip()}",
            where=where,
            hint="let REQUESTS_CA_BUNDLE or SSL_CERT_FILE name a file that holds the CA",
        )
    if isinstance(silent, requests.exceptions.ChunkedEncodingError):
        return HostError(f"{host} broke off in the middle of an answer", where=where, hint="try again later")
    if type(silent) is OSError:  # requests cannot open the file with the CA, and says so
        return HostError(str(silent), where=where, hint="REQUESTS_CA_BUNDLE or SSL_CERT_FILE names it")
    return HostError(
        f"the registry {host} cannot be reached", where=where, hint="check network and proxy: invoke doctor"
    )

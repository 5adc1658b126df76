"""HTTP to registries: schemes, time limits, errors when nothing answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ftbuild import __version__
from ftbuild.errors import HostError
from ftbuild.registry.policy import POLICY

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
# A registry may take long to store a manifest of an image with large layers.
ANSWER_SECONDS = 60.0
CONNECTIONS = 16
# A body that breaks off comes too late for the retries of the connection.
BODY_TRIES = 3


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
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Return the answer, whatever its status; raise HostError when there is none."""
        import tenacity
        from requests.exceptions import ChunkedEncodingError
        from urllib3.exceptions import HTTPError

        def once() -> requests.Response:
            return self._http.request(
                method,
                url,
                headers=dict(headers or {}),
                data=data,
                # A callable, even where there is nothing to add: otherwise requests looks into ~/.netrc.
                auth=_adder(authorization),
                timeout=(CONNECT_SECONDS, self._answer_seconds),
                allow_redirects=method in ("GET", "HEAD"),
                proxies=_proxies(url),
            )

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ChunkedEncodingError),
            stop=tenacity.stop_after_attempt(self._body_tries),
            reraise=True,
        )
        try:
            return retrying(once)
        except (OSError, HTTPError) as silent:
            raise _unreachable(url, silent) from silent


def is_loopback(host: str) -> bool:
    """Return whether `host[:port]` is this machine: localhost, 127.0.0.0/8 or ::1."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def resolved(root: str, place: str) -> str:
    """Return a path or URL that a registry gave as a URL, on its own host never less safe than `root`.

    A registry behind a proxy that ends TLS may call itself http.
    """
    url, own = urlsplit(urljoin(root, place)), urlsplit(root)
    return url._replace(scheme=own.scheme).geturl() if url.netloc == own.netloc else url.geturl()


def is_within(url: str, root: str) -> bool:
    """Return whether both are of the same origin (RFC 6454)."""
    return urlsplit(url)[:2] == urlsplit(root)[:2]


def bare(url: str) -> str:
    """Return `url` without its query, which may hold a state or a signature to keep secret."""
    return url.partition("?")[0]


def _speaks_tls(host: str) -> bool:
    """Return whether TLS answers at all; nothing is sent, and trust is decided later."""
    import socket
    import ssl

    address = urlsplit(f"//{host}")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((address.hostname, address.port or 443), CONNECT_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as refused:
        return "ALERT" in (refused.reason or "")  # who sends an alert speaks TLS (RFC 8446, section 6)
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

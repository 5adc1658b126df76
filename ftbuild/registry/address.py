"""Addresses that a registry gives its client: token servers, upload locations, redirects, further pages.

All are parsed as urllib3 does, which makes the connections: parsers that disagree about the host of a URL
would let a registry pass one for another.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from ftbuild.registry.malformed import Malformed
from ftbuild.text import terminal

if TYPE_CHECKING:
    from urllib3.util.url import Url

# Of these, parsers make different hosts, or none; a user or password is nothing that a registry should give.
_ODD = re.compile(r"[\\\s\x00-\x1f\x7f]|^[^/?#]*//[^/?#]*@")


def is_loopback(host: str) -> bool:
    """Return whether `host[:port]` is this machine: localhost, 127.0.0.0/8 or ::1."""
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        name = (parse_url(f"//{host}").host or "").strip("[]")
        return name == "localhost" or ip_address(name).is_loopback
    except (LocationParseError, ValueError):
        return False


def resolved(root: str, place: str) -> str:
    """Return a path or URL that a registry gave as a URL, never less safe than `root`.

    On the host of `root` the scheme stays: a registry behind a proxy that ends TLS may call itself http.
    Elsewhere it has to be TLS, but for another server on this machine. Raises `Malformed` for any other.
    """
    try:
        url = _parsed(urljoin(root, place))
    except ValueError:
        raise _unusable(place) from None
    own = _parsed(root)
    if url.netloc == own.netloc:
        return url._replace(scheme=own.scheme).url
    if url.scheme == "https" or (is_loopback(url.netloc or "") and is_loopback(own.netloc or "")):
        return url.url
    raise Malformed(
        "a registry redirects to another server without TLS",
        where=f"{_shown(root)} to {_shown(url.url)}",
        hint="nothing was sent there; ask who runs the registry",
    )


def token_server(realm: str, registry: str) -> str:
    """Return the token server that a registry names, if a password may be sent there; `Malformed` if not.

    It may over TLS, or without leaving this machine if the registry is on it, too.
    """
    url = _parsed(realm)
    if url.scheme != "https" and not (is_loopback(url.netloc or "") and is_loopback(registry)):
        raise Malformed(f"{registry} names a token server without TLS", where=_shown(realm) or "no realm")
    return url._replace(fragment=None).url


def is_within(url: str, root: str) -> bool:
    """Return whether both are of the same origin (RFC 6454)."""
    return _origin(url) == _origin(root)


def bare(url: str) -> str:
    """Return `url` without its query, which may hold a state or a signature to keep secret."""
    return url.partition("?")[0]


def _origin(url: str) -> tuple[str | None, str | None]:
    parsed = _parsed(url)
    return parsed.scheme, parsed.netloc


def _parsed(url: str) -> Url:
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        parsed = parse_url(url)
    except (LocationParseError, ValueError):
        raise _unusable(url) from None
    if parsed.scheme not in ("http", "https") or not parsed.host or _ODD.search(url):
        raise _unusable(url)
    return parsed


def _unusable(url: str) -> Malformed:
    return Malformed("a registry returned an invalid address", where=_shown(url) or "an empty one")


def _shown(url: str) -> str:
    """Return an address for a message: without query, user and password."""
    return terminal.printable(re.sub(r"//.*@", "//***@", bare(url))[:300])

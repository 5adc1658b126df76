"""Origins of web pages, as browsers send them (RFC 6454, 6.2). Pure; needs none of the front's packages."""

from __future__ import annotations

from urllib.parse import urlsplit

from ftserve.front.errors import ConfigError

ANY = "*"


def read(text: str, option: str) -> str:
    """Return an origin in the form that browsers send, or `*` for all; ConfigError for what is none."""
    if text == ANY:
        return text
    try:
        parts = urlsplit(text)
        whole, host, _ = f"{parts.scheme}://{parts.netloc}", parts.hostname, parts.port
    except ValueError:  # a port that is none, for instance
        whole, host = "", None
    if (
        not host
        or not whole.startswith(("http://", "https://"))
        or "@" in text
        or text.rstrip("/") != whole
        or not text.isascii()
        or not text.isprintable()
    ):
        raise ConfigError(
            f"{option} {text[:80]!r} is not an origin", hint="such as https://chat.example.com, or *"
        )
    return whole

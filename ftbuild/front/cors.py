"""Web pages of other origins that may ask (CORS): none, unless an option names them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp

ANY = "*"
# Seconds for which a browser need not ask again whether it may ask.
_KNOWN_SECONDS = 600


def origin(text: str) -> str:
    """Return an origin as browsers send it, or `*` for all; ArgumentTypeError for what is none."""
    if text == ANY:
        return text
    try:
        parts = urlsplit(text)
        whole = f"{parts.scheme}://{parts.netloc}"
        fits = parts.scheme in ("http", "https") and parts.hostname and text.rstrip("/") == whole
    except ValueError:
        fits = False
    if not fits or "@" in text:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no origin, such as https://chat.example.com")
    return whole


def allowing(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return the application with the headers by which browsers let pages of these origins ask it.

    Pages send keys as a header, and no cookies.
    """
    if not origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=[ANY],
        expose_headers=["Retry-After"],
        max_age=_KNOWN_SECONDS,
    )

"""Web pages of other origins that may ask (CORS): none, unless an option names them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

# Seconds for which a browser need not ask again whether it may ask.
_KNOWN_SECONDS = 600


def allowing(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return the application with the headers by which browsers let pages of these origins ask it.

    Pages send keys as a header, and no cookies.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
        max_age=_KNOWN_SECONDS,
    )

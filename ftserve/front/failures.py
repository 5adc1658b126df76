"""Failures in the form of OpenAI's API: an HTTP status, and `error` with message, type, param and code.

Those of the Triton server are in statuses.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REQUEST, AUTHENTICATION, SERVER = "invalid_request_error", "authentication_error", "server_error"
# Seconds after which a client may come back: a place is free, or a server has been started again.
_BUSY_SECONDS, AWAY_SECONDS = 1, 5
TOO_LONG = "context_length_exceeded"


class Failure(Exception):
    """A request that is answered with an error; the message is for the client and holds no prompt."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer (platform.openai.com/docs/guides/error-codes)."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def unsupported(param: str, reason: str) -> Failure:
    """Return the refusal of a parameter that this service cannot honour."""
    return Failure(400, f"{param}: {reason}", param=param, code="unsupported_parameter")


def unknown(param: str) -> Failure:
    """Return the refusal of a name that no parameter has."""
    return Failure(400, f"unknown argument: {param}", param=param, code="unknown_parameter")


def too_long(message: str, param: str) -> Failure:
    """Return the refusal of a text, or of a text with its answer, that the model has no room for."""
    return Failure(400, message, param=param, code=TOO_LONG)


def unauthorized() -> Failure:
    """Return the answer to a request without its key (RFC 9110, 15.5.2: it names the scheme)."""
    return Failure(
        401,
        "the API key is missing or wrong",
        kind=AUTHENTICATION,
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def busy(message: str) -> Failure:
    """Return the answer to one request more than may be answered at once."""
    return Failure(
        429,
        f"{message}; try again later",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"Retry-After": str(_BUSY_SECONDS)},
    )


def unavailable(message: str) -> Failure:
    """Return the answer while the Triton server cannot be reached."""
    return Failure(
        503,
        message,
        kind=SERVER,
        code="server_unavailable",
        headers={"Retry-After": str(AWAY_SECONDS)},
    )


def late() -> Failure:
    """Return the answer to a request that the server has not answered in time."""
    return Failure(504, "the Triton server took too long", kind=SERVER, code="timeout")


def broken() -> Failure:
    """Return the answer to a request in which the server failed."""
    return Failure(500, "the Triton server failed", kind=SERVER)

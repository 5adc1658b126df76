"""Failures in the form of OpenAI's API: an HTTP status, and `error` with message, type, param and code."""

from __future__ import annotations

from typing import Any

REQUEST, AUTHENTICATION, SERVER = "invalid_request_error", "authentication_error", "server_error"


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
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer (platform.openai.com/docs/guides/error-codes)."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def unsupported(param: str, reason: str) -> Failure:
    """Return the refusal of a parameter that this service cannot honour."""
    return Failure(400, f"{param}: {reason}", param=param, code="unsupported_parameter")


def busy(most: int) -> Failure:
    """Return the answer to one request more than may be answered at once."""
    return Failure(
        429,
        f"{most} answers are being computed; try again later",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
    )


def unavailable(message: str) -> Failure:
    """Return the answer while the Triton server cannot be asked."""
    return Failure(503, message, kind=SERVER, code="server_unavailable")

"""What every request passes before it is read: key, place, size, time; and what no answer may reveal.

A key is checked before anything is counted or read, and an unneeded body is not read: an answer
without it ends the connection. Nothing of a request's body is ever logged, nor of its query, so an unexpected
error is logged by its type and place alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ftserve.front import limits
from ftserve.front.failures import SERVER, Failure, unauthorized
from ftserve.front.leaving import Gone
from ftserve.front.metrics import Metrics
from ftserve.front.places import Bodies, Held, Places

LOG = logging.getLogger("uvicorn.error")
_OPEN = ("/health",)


class Guard:
    """The application around all others: it requires a key, and answers every error."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], metrics: Metrics) -> None:
        """`keys` are accepted as bearer tokens; without any, all are. `metrics` counts the answers."""
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error in OpenAI's form."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # It would be logged, and nothing here has a use for it.
        scope["query_string"] = b""
        # So the router raises what it refuses.
        scope["app"] = self
        exchange = _Exchange(scope, receive, send)
        with self._metrics.request(scope["path"]) as counted:
            try:
                await self._answer(scope, exchange)
            finally:
                counted.status = exchange.status

    async def _answer(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            if scope["path"] not in _OPEN and self._keys and not self._authorized(scope):
                raise unauthorized()
            await self._app(scope, exchange.receive, exchange.send)
            return
        except Gone:
            return
        except Failure as refused:
            failure = refused
        except HTTPException as refused:
            failure = _of_router(scope, refused)
        except Exception as broken:
            LOG.error("%s at %s", type(broken).__name__, _place(broken))
            failure = Failure(500, "an unexpected error; the service's log says where", kind=SERVER)
        if not exchange.status:
            answer = JSONResponse(failure.body(), failure.status, headers=failure.headers)
            await answer(scope, exchange.receive, exchange.send)

    def _authorized(self, scope: Scope) -> bool:
        sent = header(scope, b"authorization")
        kind, _, key = sent.partition(b" ")
        # All are compared, so that the time reveals nothing.
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        return kind.lower() == b"bearer" and any(matches)


class _Exchange:
    """A request and its answer, which ends the connection if the body has not been read to its end."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._length = header(scope, b"content-length")
        chunked = bool(header(scope, b"transfer-encoding"))
        self._unread = chunked or self._length not in (b"", b"0")
        self._lingers = not chunked and self._length.isdigit() and int(self._length) <= limits.LINGER_BYTES
        # Of the answer; 0 before it.
        self.status = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._unread:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        elif self._unread and self._lingers and not message.get("more_body", False):
            # The answer goes out, and the connection ends a little later: else a client that is still sending
            # would see a broken connection, not the answer.
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.LINGER_SECONDS):
                while self._unread:
                    await self.receive()


class Answering:
    """The application for one path: it reads the body within all limits, and holds a place meanwhile."""

    def __init__(
        self,
        answer: Callable[[Scope, Receive, bytes], Awaitable[Any]],
        places: Places,
        bodies: Bodies,
        max_bytes: int,
    ) -> None:
        """`answer` returns the response to a body, an ASGI application."""
        self._answer = answer
        self._places = places
        self._bodies = bodies
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; Failure (429) without a place, (413, 408) for a body too large or too slow."""
        # Before the body is read, and after it: a slow client takes no place.
        self._places.require()
        with self._bodies.held() as held:
            body = await self._whole(scope, receive, held)
            with self._places.taken():
                response = await self._answer(scope, receive, body)
                del body
                held.give_back()
                await response(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive, held: Held) -> bytes:
        _require_plain(scope)
        length = header(scope, b"content-length")
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_big()
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(limits.BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part = message.get("body", b"")
                    if len(body) + len(part) > self._max_bytes:
                        raise self._too_big()
                    held.take(len(part))
                    body += part
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Failure(408, f"no whole request within {limits.BODY_SECONDS} s") from None
        return bytes(body)

    def _too_big(self) -> Failure:
        return Failure(413, f"the request is larger than {self._max_bytes} bytes", code="request_too_large")


def _of_router(scope: Scope, refused: HTTPException) -> Failure:
    """Return the refusal of a path or of a method; 405 names those that are allowed (RFC 9110, 15.5.6)."""
    if refused.status_code == 404:
        return Failure(404, f"no such path: {scope['method']} {scope['path'][:200]}", code="unknown_url")
    return Failure(refused.status_code, str(refused.detail), headers=refused.headers)


def _require_plain(scope: Scope) -> None:
    """Raise Failure for a compressed body: 415 with the coding that is read (RFC 9110, 15.5.16).

    One that is compressed for its way alone is a 501 (RFC 9112, 6.1).
    """

    def codings(field: bytes) -> set[bytes]:
        fields = (value for name, value in scope["headers"] if name == field)
        return {coding.strip().lower() for value in fields for coding in value.split(b",")} - {b""}

    if not codings(b"transfer-encoding") <= {b"chunked"}:
        raise Failure(501, "the body has a Transfer-Encoding other than chunked", code="unsupported_encoding")
    if not codings(b"content-encoding") <= {b"identity"}:
        raise Failure(
            415,
            "the body has a Content-Encoding; send it as it is, uncompressed",
            code="unsupported_encoding",
            headers={"Accept-Encoding": "identity"},
        )


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first field of that name, empty where there is none."""
    content: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return content


def _place(broken: BaseException) -> str:
    frames = traceback.extract_tb(broken.__traceback__)
    return " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames[-5:]))

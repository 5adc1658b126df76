"""What every request passes before it is read: key, size, number of requests; and what no answer may tell.

Nothing of a request's body is ever logged, so an unexpected error is logged by its type and place alone.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from collections.abc import Sequence

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ftbuild.front.failures import AUTHENTICATION, SERVER, Failure, busy
from ftbuild.front.leaving import Gone

LOG = logging.getLogger("uvicorn.error")
# A client may take so many seconds to send a request.
_BODY_SECONDS = 60
_OPEN = ("/health",)


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], most_bytes: int, most_requests: int) -> None:
        """`keys` are accepted as bearer tokens; without any, everybody is."""
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._most_bytes = most_bytes
        self._most_requests = most_requests
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error in OpenAI's form."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        answer: Response
        self._requests += 1
        try:
            if scope["path"] not in _OPEN:
                self._check(scope)
            await self._app(scope, await self._whole(scope, receive), noted)
            return
        except Gone:
            return
        except Failure as refused:
            answer = JSONResponse(refused.body(), refused.status)
        except Exception as broken:
            LOG.error("%s at %s", type(broken).__name__, _place(broken))
            unexpected = Failure(500, "an unexpected error; the service's log says where", kind=SERVER)
            answer = JSONResponse(unexpected.body(), 500)
        finally:
            self._requests -= 1
        if not started:
            await answer(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if self._keys and not self._authorized(scope):
            raise Failure(401, "the API key is missing or wrong", kind=AUTHENTICATION, code="invalid_api_key")
        if self._requests > self._most_requests:
            raise busy(self._most_requests)

    def _authorized(self, scope: Scope) -> bool:
        sent = _header(scope, b"authorization")
        kind, _, key = sent.partition(b" ")
        # All are compared, so that the time tells nothing.
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        return kind.lower() == b"bearer" and any(matches)

    async def _whole(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body; return what gives it to the application, and then what comes after it."""
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > self._most_bytes:
            raise self._too_big()
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._most_bytes:
                        raise self._too_big()
        except TimeoutError:
            raise Failure(408, f"no whole request within {_BODY_SECONDS} s") from None
        waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        return replayed

    def _too_big(self) -> Failure:
        return Failure(413, f"the request is larger than {self._most_bytes} bytes", code="request_too_large")


def _header(scope: Scope, name: bytes) -> bytes:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found


def _place(broken: BaseException) -> str:
    frames = traceback.extract_tb(broken.__traceback__)
    return " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames[-5:]))

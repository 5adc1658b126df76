"""Work that ends when the client that waits for it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ftserve.front.together import end

T = TypeVar("T")
_PART_BYTES = 64 << 10


class Gone(Exception):
    """The client has closed its connection."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it and raise Gone when the client closes its connection.

    The body of the request must have been read: what comes next is the end.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        await end((working, leaving))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Events(Response):
    """A stream of server-sent events: the first one, and those that `others` makes.

    These are closed as soon as the client is gone, also while the next one is waited for.
    """

    media_type = "text/event-stream"

    def __init__(self, first: bytes, others: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; Gone when the client is."""
        await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self._others) as others:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for event in others:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


class Parts(Response):
    """An answer of JSON in parts, which a thread makes one after the other while they are sent."""

    media_type = "application/json"

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; Gone when the client is."""
        await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while part := await asyncio.to_thread(self._next):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _next(self) -> bytes:
        """Return the next parts, as many as are sent at once."""
        parts = bytearray()
        for part in self._parts:
            parts += part
            if len(parts) >= _PART_BYTES:
                break
        return bytes(parts)

"""gRPC calls that outlive whoever waits for them, where to break one off would end the server.

Servers before 2.59 (25.06) can end with a segmentation fault when a call is cancelled while its answer is on
its way: server issues 7368 and 8034, last of the fixes pull request 8220. A deadline cancels, too, so calls
have none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

import grpc

from ftbuild.front.failures import Failure, busy

SAFE_FROM = (2, 59)
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def survives_cancelling(version: str) -> bool:
    """Return whether a server of this version survives that its calls are cancelled."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= SAFE_FROM


class Latest:
    """The responses of a call, of which only the newest counts: each holds all tokens so far.

    `take` makes a response of a message of the call: None for one that says nothing, Failure for an error.
    """

    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take
        self._waiting: asyncio.Future[None] | None = None
        self._response: Any = None
        self._failure: grpc.RpcError | Failure | None = None
        self._ended = self._late = False

    async def fill(self, call: Any) -> None:
        """Take all responses of a call, a stream's or the one of a single answer."""
        try:
            if isinstance(call, AsyncIterable):
                async for message in call:
                    self._put(message)
            else:
                self._put(await call)
        except (grpc.RpcError, Failure) as failed:
            self._failure = failed
        finally:
            self._ended = True
            self._wake()

    async def responses(self, seconds: float) -> AsyncGenerator[Any, None]:
        """Yield the newest response whenever there is one; raise what the call fails with.

        Raises TimeoutError when the call takes longer.
        """
        # One timer for the whole call: one for each token would cost as much as the token.
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._expire)
        try:
            while not self._late:
                if self._response is not None:
                    response, self._response = self._response, None
                    yield response
                elif self._ended:
                    break
                else:
                    self._waiting = loop.create_future()
                    await self._waiting
        finally:
            timer.cancel()
        if self._late:
            raise TimeoutError
        if self._failure is not None:
            raise self._failure

    def _put(self, message: Any) -> None:
        response = self._take(message)
        if response is not None:
            self._response = response
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _expire(self) -> None:
        self._late = True
        self._wake()


class Calls:
    """The calls that run, also those that nobody waits for any more."""

    def __init__(self, most: int) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._most = most

    def require_room(self) -> None:
        """Raise Failure (429) when one more call would be too many."""
        if len(self._running) >= self._most:
            raise busy(f"{self._most} answers are being computed")

    def start(self, call: Any, take: Callable[[Any], Any]) -> Latest:
        """Take the responses of a call from now on, whoever waits for them or leaves."""
        latest = Latest(take)
        filling = asyncio.create_task(latest.fill(call))
        self._running.add(filling)
        filling.add_done_callback(self._running.discard)
        return latest

    async def finished(self, seconds: float) -> None:
        """Return when all calls have ended, or after so many seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

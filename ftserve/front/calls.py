"""gRPC calls that outlive their clients, where breaking one off would end the server.

A server can end with a segmentation fault when a call is cancelled while its answer is on its way: one before
2.59 (25.06) by any call (server issues 7368 and 8034, last of the fixes pull request 8220), a later one by a
stream (FTBUILD-2026-7 in holes.yaml). Those that we compile, from 2.70 (26.06) on, have a patch. A deadline
cancels, too, so calls have none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from ftserve.front import statuses
from ftserve.front.failures import Failure, busy, late

SAFE_FROM = (2, 70)
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def survives_cancelling(version: str) -> bool:
    """Return whether a server of this version survives that its calls are cancelled."""
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) >= SAFE_FROM


class Latest:
    """The responses of a call, of which only the newest counts: each holds all tokens so far.

    `take` makes a response of a message of the call: None for one that says nothing, Failure for an error.
    """

    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._response: Any = None
        self._failure: Failure | None = None
        self._late = False
        # Whether the answer is, so that nothing is left to break off.
        self.whole = False
        # With or without a client that waits.
        self.ended: asyncio.Future[None] = self._loop.create_future()

    async def fill(self, call: Any) -> None:
        """Take the one message of a call that is answered once."""
        failure: Failure | None = None
        try:
            self.put(await call)
        except grpc.RpcError as failed:
            failure = statuses.of_server(failed.code(), failed.details() or "")
        finally:
            self.end(failure)

    def put(self, message: Any) -> None:
        """Take one message."""
        try:
            response = self._take(message)
        except Failure as failed:
            # What comes after it says no more.
            self._failure = self._failure or failed
            return
        if response is not None:
            self._response = response
            self._wake()

    def end(self, failure: Failure | None) -> None:
        """Note the end of the messages, with the reason if the call has failed."""
        self._failure = self._failure or failure
        if not self.ended.done():
            self.ended.set_result(None)
        self._wake()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let `next` raise Failure (504) when the call takes longer."""
        # One timer for the whole call: one for each token would cost as much as the token.
        timer = self._loop.call_later(seconds, self._expire)
        try:
            yield
        finally:
            timer.cancel()

    async def next(self) -> Any:
        """Return the newest response once there is one, None at the end; raise what the call fails with."""
        while self._response is None and not self._late and not self.ended.done():
            self._waiting = self._loop.create_future()
            await self._waiting
        if self._late:
            raise late()
        response, self._response = self._response, None
        if response is None and self._failure is not None:
            raise self._failure
        return response

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _expire(self) -> None:
        self._late = True
        self._wake()


class Calls:
    """The calls that run, also those that no client waits for any longer."""

    def __init__(self, limit: int) -> None:
        self._running: set[Latest] = set()
        self._filling: set[asyncio.Task[None]] = set()
        self._limit = limit

    def begin(self, take: Callable[[Any], Any]) -> Latest:
        """Return what takes the messages of a new call; Failure (429) when that would be too many."""
        if len(self._running) >= self._limit:
            raise busy(f"{self._limit} answers are being computed")
        latest = Latest(take)
        self._running.add(latest)
        latest.ended.add_done_callback(lambda _: self._running.discard(latest))
        return latest

    def fill(self, latest: Latest, call: Any) -> None:
        """Take the message of a call that is answered once, even if its client has left."""
        filling = asyncio.create_task(latest.fill(call))
        self._filling.add(filling)
        filling.add_done_callback(self._filling.discard)

    async def finished(self, seconds: float) -> None:
        """Return when all calls have ended, or after so many seconds."""
        if self._running:
            await asyncio.wait([latest.ended for latest in self._running], timeout=seconds)

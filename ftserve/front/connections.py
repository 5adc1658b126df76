"""Connections of clients, with limits of time and number that uvicorn's own protocols lack.

A head that does not come, a client that does not read, more connections than files: none of them takes a
place from others, since all of that is before or after a request (guard.py).
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ftserve.front import limits

try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # a package that is faster, and not everywhere
    HttpToolsProtocol = None  # type: ignore[assignment, misc]

# At once; each takes some 20 KB.
MAX_CONNECTIONS = 4096
# Bytes that are parsed in one step.
_STEP_BYTES = 32 << 10


def max_connections() -> int:
    """Return how many connections the process may have; before that it takes all files that it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + limits.OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(soft - limits.OTHER_FILES, 1)
    return MAX_CONNECTIONS


def protocol(limit: int) -> type[asyncio.Protocol]:
    """Return the protocol for a server that has at most so many connections."""

    class Own(_HttpTools if HttpToolsProtocol else _H11):  # type: ignore[misc]
        max_connections = limit
        waiting: dict[_Bounded, None] = {}  # noqa: RUF012 (it belongs to all connections)

    return Own


class _Bounded(asyncio.Protocol):
    """What is added to a protocol of uvicorn's."""

    max_connections: int
    # Connections whose client has to send the head of a request, the one that waits longest first.
    waiting: dict[_Bounded, None]

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    # Of the head that is being read.
    _head_bytes = 0
    # Of what waits to be sent.
    _unsent = 0

    def connection_made(self, transport: Any) -> None:
        """Take the connection; where there are too many, end the one that has waited longest for a head."""
        if hasattr(transport, "max_size"):
            # asyncio reads 256 KiB at once.
            transport.max_size = _STEP_BYTES
        super().connection_made(transport)
        self._expect_head()
        if len(self.connections) > self.max_connections:  # type: ignore[attr-defined]
            next(iter(self.waiting)).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_head()
        self._stop_send()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes, of a head only so many."""
        if not self._answering():
            self._head_bytes += len(data)
        super().data_received(data)
        if self._closing():
            return
        if self._answering():
            self._head_bytes = 0
            self._stop_head()
        elif self._head_bytes > limits.HEAD_BYTES:
            self.abort()
        elif self._head_timer is None:
            # The beginning of one more head.
            self._expect_head()

    def on_response_complete(self) -> None:
        """Wait for the next head, which may be there already."""
        super().on_response_complete()  # type: ignore[misc]
        if not self._closing() and not self._answering():
            self.waiting[self] = None

    def pause_writing(self) -> None:
        """Give a client that does not read a limited time."""
        super().pause_writing()
        self._unsent = self._buffered()
        self._stop_send()
        self._send_timer = asyncio.get_running_loop().call_later(limits.SEND_SECONDS, self._require_progress)

    def resume_writing(self) -> None:
        """Send on."""
        self._stop_send()
        super().resume_writing()

    def abort(self) -> None:
        """End the connection at once, with what waits to be sent."""
        self.waiting.pop(self, None)
        self.transport.abort()  # type: ignore[attr-defined]

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self.waiting[self] = None
        self._head_timer = asyncio.get_running_loop().call_later(limits.HEAD_SECONDS, self.abort)

    def _stop_head(self) -> None:
        self.waiting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _require_progress(self) -> None:
        left = self._buffered()
        if self._unsent - left < limits.SEND_BYTES:
            self.abort()
            return
        self._unsent = left
        self._send_timer = asyncio.get_running_loop().call_later(limits.SEND_SECONDS, self._require_progress)

    def _stop_send(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _buffered(self) -> int:
        size: int = self.transport.get_write_buffer_size()  # type: ignore[attr-defined]
        return size

    def _answering(self) -> bool:
        cycle = self.cycle  # type: ignore[attr-defined]
        return cycle is not None and not cycle.response_complete

    def _closing(self) -> bool:
        closing: bool = self.transport.is_closing()  # type: ignore[attr-defined]
        return closing


class _H11(_Bounded, H11Protocol):
    """The protocol in Python, which bounds heads and trailers itself (h11_max_incomplete_event_size)."""


if HttpToolsProtocol is not None:

    class _Parser(httptools.HttpRequestParser):
        """The parser in C, for which nothing of HTTP follows a head that offers another protocol."""

        def __init__(self, protocol: _HttpTools) -> None:
            super().__init__(protocol)
            # As uvicorn sets it: what follows a last request is no error.
            self.set_dangerous_leniencies(lenient_data_after_close=True)
            self._protocol = protocol

        def feed_data(self, data: Any) -> None:
            """Parse some bytes; a request with an offer as if it had none (RFC 9110, 7.8)."""
            try:
                super().feed_data(data)
            except httptools.HttpParserUpgrade as offered:
                if not self._protocol.offers:
                    raise
                self._protocol.begin_again(data[offered.args[0] :])

    class _HttpTools(_Bounded, HttpToolsProtocol):
        """The protocol in C, which collects whatever comes."""

        _fields = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.parser = _Parser(self)

        @property
        def offers(self) -> bool:
            """Whether the head that has been read offers another protocol, which is ignored."""
            return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

        def begin_again(self, rest: bytes) -> None:
            """Read the head without the offer, and what follows it."""
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
            self.parser = _Parser(self)
            self.parser.feed_data(b"\r\n".join([*lines, b"", rest]))

        def on_message_begin(self) -> None:
            """Begin a request."""
            self._fields = 0
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            """Take a field of the head, or one that follows a chunked body."""
            self._fields += len(name) + len(value)
            if self._fields > limits.HEAD_BYTES:
                raise ValueError("the head of a request is too long")
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            """Begin to answer; uvicorn lets any number of requests wait for that."""
            if self.offers:
                return
            if len(self.pipeline) >= limits.MAX_PIPELINED:
                raise ValueError("too many requests at once on one connection")
            super().on_headers_complete()
            if self.parser.get_http_version() == "1.0":
                _end_with_connection(self.cycle)

        def on_message_complete(self) -> None:
            """End a request."""
            if not self.offers:
                super().on_message_complete()

    def _end_with_connection(cycle: Any) -> None:
        """Let an answer of unknown length end with its connection: HTTP/1.0 has no chunks (RFC 9112, 6.1)."""
        send, unframed = cycle.send, False

        async def sent(message: Any) -> None:
            nonlocal unframed
            if message["type"] == "http.response.start":
                unframed = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = False if unframed else None
            elif unframed:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.send = sent

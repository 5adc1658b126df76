"""Streams of a gRPC server, read with h2: one connection, and no task, thread or system call for a message.

grpcio's asyncio interface takes most of a token's time of the processor (benchmarks/README.md, The OpenAI
front). Frames of data go past h2 for the same reason (frames.py). Calls that are answered once are still
grpcio's (triton.py). The protocol is that of PROTOCOL-HTTP2.md in grpc/grpc's doc.
"""

from __future__ import annotations

import asyncio
import struct
import urllib.parse
from collections.abc import Callable
from typing import Any

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from ftserve.front import statuses
from ftserve.front.failures import Failure
from ftserve.front.frames import Frames, Window

_CONNECT_SECONDS = 10
# Of one stream, and of the whole connection: more than the messages of all answers that are on their way.
_WINDOW = 1 << 22
# Flag of compression, and length, before each message.
_PREFIX = struct.Struct(">BI")
# Larger than a message with the tokens of any prompt and answer.
_MAX = 1 << 26
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_LOST = "the connection was lost"


class Stream:
    """A call under way: `message` gets each message of it, `ended` None or why it has failed, once."""

    def __init__(
        self,
        connection: _Connection,
        number: int,
        message: Callable[[bytes], None],
        ended: Callable[[Failure | None], None],
    ) -> None:
        self._connection = connection
        self.number = number
        self._message = message
        self._ended = ended
        self._buffer = bytearray()
        self.window = Window(number, _WINDOW)
        # What the server's window has no room for yet.
        self.unsent = b""
        self.status: grpc.StatusCode | None = None
        self.words = ""

    def cancel(self) -> None:
        """Break the call off."""
        self._connection.reset(self)

    def take(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        buffer = self._buffer
        size = len(data) - _PREFIX.size
        if not buffer and size >= 0 and _PREFIX.unpack_from(data) == (0, size):
            # Nearly always a frame is a message.
            self._message(data[_PREFIX.size :])
            return
        buffer += data
        while len(buffer) >= _PREFIX.size:
            compressed, size = _PREFIX.unpack_from(buffer)
            if compressed or size > _MAX:
                raise ProtocolError("a message that was not asked for")
            if len(buffer) < _PREFIX.size + size:
                return
            message = bytes(buffer[_PREFIX.size : _PREFIX.size + size])
            del buffer[: _PREFIX.size + size]
            self._message(message)

    def headers(self, fields: Any) -> None:
        """Take the status, which may come with the first header or with the last one."""
        for name, value in fields:
            if name == b"grpc-status":
                self.status = _BY_NUMBER.get(int(value) if value.isdigit() else -1, grpc.StatusCode.UNKNOWN)
            elif name == b"grpc-message":
                self.words = urllib.parse.unquote(value.decode("latin-1"), errors="replace")
            elif name == b":status" and value != b"200":
                self.status = grpc.StatusCode.UNAVAILABLE

    def end(self, status: grpc.StatusCode | None = None) -> None:
        """End with the status of the server, or with another one."""
        status = status or self.status or grpc.StatusCode.UNKNOWN
        self._ended(None if status is grpc.StatusCode.OK else statuses.of_server(status, self.words))


class Streams:
    """Calls for streams of the method `path` of the server at `host:port`."""

    def __init__(self, address: str, path: str, metadata: tuple[tuple[str, str], ...]) -> None:
        """`metadata` is sent with each call. Nothing is connected yet."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._headers = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", address.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *((name.encode(), value.encode()) for name, value in metadata),
        ]
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def start(
        self, request: bytes, message: Callable[[bytes], None], ended: Callable[[Failure | None], None]
    ) -> Stream:
        """Start a call; Failure (503) when the server cannot be reached."""
        async with self._connecting:
            if self._connection is None or not self._connection.usable:
                self._connection = await self._connected()
        try:
            return self._connection.start(self._headers, request, message, ended)
        except ProtocolError:
            raise statuses.of_server(grpc.StatusCode.RESOURCE_EXHAUSTED, "") from None

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, made = await loop.create_connection(_Connection, self._host, self._port)
        except (OSError, TimeoutError, UnicodeError):
            raise statuses.of_server(grpc.StatusCode.UNAVAILABLE, _LOST) from None
        return made

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        # Header fields of the server are bytes, and are looked at here.
        self._h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
            )
        )
        self._streams: dict[int, Stream] = {}
        self._frames = Frames()
        self._window = Window(0, _WINDOW)
        # Frames that open windows again, to be sent.
        self._opened = b""
        self.usable = False

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.ENABLE_PUSH: 0})
        self._h2.increment_flow_control_window(_WINDOW)
        self.usable = True
        self._flush()

    def start(
        self,
        headers: list[tuple[bytes, bytes]],
        request: bytes,
        message: Callable[[bytes], None],
        ended: Callable[[Failure | None], None],
    ) -> Stream:
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, headers)
        stream = self._streams[number] = Stream(self, number, message, ended)
        stream.unsent = _PREFIX.pack(0, len(request)) + request
        self._send(stream)
        self._flush()
        return stream

    def reset(self, stream: Stream) -> None:
        if self._streams.pop(stream.number, None) is None:
            return
        self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        stream.end(grpc.StatusCode.CANCELLED)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for number, content in self._frames.split(data):
                if number:
                    self._take_data(number, content)
                else:
                    for event in self._h2.receive_data(content):
                        self._take(event)
        except ProtocolError:
            self._fail()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail()

    def close(self) -> None:
        self.usable = False
        self._transport.close()

    def _take_data(self, number: int, content: bytes) -> None:
        self._opened += self._window.take(len(content))
        # Else it has been broken off.
        if stream := self._streams.get(number):
            self._opened += stream.window.take(len(content))
            stream.take(content)

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            # The server takes no more calls; those up to one of them are still answered.
            self.usable = False
            for stream in list(self._streams.values()):
                if event.error_code or stream.number > (event.last_stream_id or 0):
                    self._end(stream, grpc.StatusCode.UNAVAILABLE)
            return
        if isinstance(event, WindowUpdated):
            for stream in list(self._streams.values()):
                if stream.unsent:
                    self._send(stream)
            return
        number = getattr(event, "stream_id", None)
        if isinstance(event, DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        stream = self._streams.get(number or 0)  # type: ignore[assignment]
        if stream is None:
            # It has been broken off.
            return
        if isinstance(event, DataReceived):
            stream.take(event.data or b"")
        elif isinstance(event, ResponseReceived | TrailersReceived):
            stream.headers(event.headers)
        elif isinstance(event, StreamEnded):
            self._end(stream)
        elif isinstance(event, StreamReset):
            self._end(stream, stream.status or grpc.StatusCode.UNAVAILABLE)

    def _send(self, stream: Stream) -> None:
        """Send of a request what the server's windows have room for, and its end."""
        while stream.unsent:
            room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            part, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._h2.send_data(stream.number, part, end_stream=not stream.unsent)

    def _end(self, stream: Stream, status: grpc.StatusCode | None = None) -> None:
        del self._streams[stream.number]
        stream.end(status)

    def _fail(self) -> None:
        self.usable = False
        for stream in list(self._streams.values()):
            self._end(stream, grpc.StatusCode.UNAVAILABLE)
        self._transport.close()

    def _flush(self) -> None:
        opened, self._opened = self._opened, b""
        if data := self._h2.data_to_send() + opened:
            self._transport.write(data)

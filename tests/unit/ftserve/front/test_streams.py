"""Streams of a gRPC server, here grpcio's own: messages whole and in order, windows, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from ftserve.front.failures import Failure
from ftserve.front.frames import Frames, Window
from ftserve.front.streams import Streams

METHOD = "/a.Service/Method"
Answer = Callable[[bytes, Any], AsyncIterator[bytes]]


class Call:
    """What came of one call."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.over: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    async def start(self, streams: Streams, request: bytes) -> Any:
        return await streams.start(request, self.messages.append, self.over.set_result)

    async def whole(self) -> list[bytes]:
        assert await asyncio.wait_for(self.over, 60) is None
        return self.messages


@asynccontextmanager
async def serving(answer: Answer, **options: int) -> AsyncIterator[Streams]:
    """Run a server that answers the method, and streams of it."""

    async def behave(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            async for message in answer(request, context):
                yield message

    handlers = {"Method": grpc.stream_stream_rpc_method_handler(behave)}
    server = grpc.aio.server(options=[(f"grpc.{name}", value) for name, value in options.items()])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    streams = Streams(f"127.0.0.1:{port}", METHOD, ())
    try:
        yield streams
    finally:
        streams.close()
        await server.stop(None)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 90)

    asyncio.run(bounded())


async def counted(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """Answer `SIZE NUMBER` with so many messages of that size, each filled with its number."""
    size, number = map(int, request.split())
    for count in range(number):
        yield bytes([count % 256]) * size


@pytest.mark.parametrize("size", [0, 1, 100, 16_379, 16_380, 100_000])
def test_messages_come_whole_whatever_frames_they_are_cut_into(size: int) -> None:
    async def test() -> None:
        async with serving(counted) as streams:
            calls = [Call() for _ in range(3)]
            for call in calls:
                await call.start(streams, b"%d 40" % size)
            for call in calls:
                assert await call.whole() == [bytes([count]) * size for count in range(40)]

    run(test)


def test_a_stream_goes_on_when_its_window_and_that_of_the_connection_have_been_filled_often() -> None:
    # Some 32 MB in two streams, of which the windows hold an eighth.
    async def test() -> None:
        async with serving(counted) as streams:
            calls = [Call(), Call()]
            for call in calls:
                await call.start(streams, b"40000 400")
            for call in calls:
                assert sum(map(len, await call.whole())) == 40_000 * 400

    run(test)


def test_what_comes_of_a_call_that_was_broken_off_opens_the_window_for_others() -> None:
    async def endless(request: bytes, context: Any) -> AsyncIterator[bytes]:
        while request == b"endless":
            yield bytes(10_000)
            await asyncio.sleep(0)
        async for message in counted(request, context):
            yield message

    async def test() -> None:
        async with serving(endless) as streams:
            for _ in range(20):
                call = Call()
                started = await call.start(streams, b"endless")
                while len(call.messages) < 50:
                    await asyncio.sleep(0)
                started.cancel()
                assert isinstance(await call.over, Failure)
                count = len(call.messages)
                other = Call()
                await other.start(streams, b"10000 20")
                assert len(await other.whole()) == 20
                assert len(call.messages) == count

    run(test)


def test_an_error_of_the_server_ends_the_call_after_its_messages() -> None:
    async def failing(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")

    async def test() -> None:
        async with serving(failing) as streams:
            call = Call()
            await call.start(streams, b"")
            failure = await call.over
            assert call.messages == [b"one"]
            assert failure is not None
            assert (failure.status, failure.message) == (
                503,
                "the queue of the Triton server is full; try again later",
            )

    run(test)


def test_a_request_larger_than_the_servers_windows_is_sent_as_they_open() -> None:
    async def length(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"%d" % len(request)

    async def test() -> None:
        async with serving(length, max_receive_message_length=-1) as streams:
            call = Call()
            await call.start(streams, bytes(5_000_000))
            assert await call.whole() == [b"5000000"]

    run(test)


# An HTTP/2 frame: settings, data of stream 3, data with a flag, data of no stream, a header.
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
DATA = bytes([0, 0, 2, 0, 0, 0, 0, 0, 3]) + b"ab"
LAST = bytes([0, 0, 2, 0, 1, 0, 0, 0, 3]) + b"cd"
NOWHERE = bytes([0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"e"


@pytest.mark.parametrize("step", [1, 2, 9, 10, 1000])
def test_frames_are_told_apart_whatever_parts_they_come_in(step: int) -> None:
    frames, sent = Frames(), SETTINGS + DATA + LAST + DATA + NOWHERE
    found = [each for at in range(0, len(sent), step) for each in frames.split(sent[at : at + step])]
    assert found == [(0, SETTINGS), (3, b"ab"), (0, LAST), (3, b"ab"), (0, NOWHERE)]


def test_a_frame_that_is_too_large_is_passed_on_before_it_has_come() -> None:
    head = bytes([1, 0, 0, 0, 0, 0, 0, 0, 3])
    assert list(Frames().split(head)) == [(0, head)]


def test_a_window_opens_again_by_what_was_taken_once_half_of_it_is() -> None:
    window = Window(5, 100)
    assert [window.take(49), window.take(0)] == [b"", b""]
    assert window.take(21) == bytes([0, 0, 4, 8, 0, 0, 0, 0, 5, 0, 0, 0, 70])
    assert window.take(49) == b""

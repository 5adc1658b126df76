"""Connections that send or take too little, or are too many: they end, and hold up nobody."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ftserve.front import limits
from testing import needs
from testing.waiting import until

uvicorn = needs.package("uvicorn")
connections = needs.package("ftserve.front.connections")
HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
PROTOCOLS = [
    pytest.param(name, id=name.lower()) for name in ("_HttpTools", "_H11") if hasattr(connections, name)
]


async def small(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def endless(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the path and the body, of a length that is not told before."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode() + b" ", "more_body": True})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app: Any, protocol: str, most: int = 100) -> Iterator[Callable[[], socket.socket]]:
    """Serve an application in a thread; yield what connects to it."""
    made = type("Own", (getattr(connections, protocol),), {"max_connections": most, "waiting": {}})
    config = uvicorn.Config(app, http=made, ws="none", lifespan="off", log_level="warning", port=0)
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert until(lambda: server.started)
        yield lambda: socket.create_connection(listening.getsockname(), timeout=30)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
        listening.close()


def ended(connection: socket.socket) -> bytes:
    """Return what comes until the connection ends."""
    found = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    connection.close()
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, HEAD + b"\r\n" + HEAD])
def test_a_head_that_does_not_come_ends_the_connection(
    protocol: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.5)
    with serving(small, protocol) as connect:
        start = time.monotonic()
        connection = connect()
        connection.sendall(sent)
        said = ended(connection)
        assert said.count(b"200 OK") == (sent.count(b"\r\n\r\n"))
        assert time.monotonic() - start < 20
        # A whole one is answered after that.
        connection = connect()
        connection.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert b"ok" in ended(connection)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"A: " + b"b" * (limits.HEAD_BYTES * 4),
        HEAD + b"A: b\r\n" * limits.HEAD_BYTES,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + b"A: b\r\n" * limits.HEAD_BYTES,
    ],
    ids=["a field", "fields", "trailers"],
)
def test_a_head_has_a_size(protocol: str, sent: bytes) -> None:
    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await small(scope, receive, send)

    with serving(reading, protocol) as connect:
        connection = connect()
        with suppress(ConnectionError):
            connection.sendall(sent)
        assert b"200 OK" not in ended(connection)


# What Java's client sends with each request to a server that it does not know yet.
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "sent",
    [
        [b"Content-Length: 4\r\n\r\nabcd"],
        [b"Content-Length: 4\r\n\r\n", b"ab", b"cd"],
        [b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n0\r\n\r\n"],
    ],
    ids=["at once", "later", "in chunks"],
)
@pytest.mark.parametrize("fields", [OFFER, OFFER.replace(b": Upgrade", b": close, Upgrade"), OFFER.lower()])
def test_a_request_that_offers_another_protocol_is_answered_with_its_body(
    protocol: str, sent: list[bytes], fields: bytes
) -> None:
    last = b"POST /last HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nef"
    with serving(echo, protocol) as connect:
        connection = connect()
        connection.sendall(b"POST /first HTTP/1.1\r\nHost: a\r\n" + fields)
        for part in sent:
            connection.sendall(part)
            time.sleep(0.02)
        if b"close" not in fields:
            connection.sendall(last)
        said = ended(connection)
    assert said.count(b"200 OK") == (1 if b"close" in fields else 2)
    assert b"/first " in said
    assert b"abcd" in said
    assert (b"/last " in said and b"ef" in said) == (b"close" not in fields)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_of_http_1_0_gets_an_answer_without_chunks(protocol: str) -> None:
    with serving(echo, protocol) as connect:
        connection = connect()
        connection.sendall(b"POST /old HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nabcd")
        head, _, body = ended(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == b"/old abcd"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_does_not_read_is_left(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEND_SECONDS", 0.3)
    left = threading.Event()

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        sending = asyncio.create_task(endless(scope, receive, send))
        while (await receive())["type"] != "http.disconnect":
            pass
        sending.cancel()
        left.set()

    with serving(noted, protocol) as connect:
        connection = connect()
        connection.sendall(HEAD + b"\r\n")
        assert left.wait(60)
        connection.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_too_many_connections_the_one_that_waits_longest_ends(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(small, protocol, most=5) as connect, caplog.at_level(logging.WARNING):
        idle = [connect() for _ in range(20)]
        last = connect()
        last.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert b"ok" in ended(last)
        assert ended(idle[0]) == b""
        for connection in idle:
            connection.close()
    assert not caplog.records


def test_files_that_may_be_opened_are_more_than_connections() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        most = connections.max_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= most + limits.OTHER_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

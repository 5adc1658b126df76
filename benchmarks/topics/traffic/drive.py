"""Clients: they send the requests of a load to a side, and note when each was sent and answered."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.topics.traffic import trace
from ftbuild.errors import FtbuildError

if TYPE_CHECKING:
    from benchmarks.topics.traffic.sides import Connection, Side
    from benchmarks.topics.traffic.trace import Load, Request

# The threads of a process share one interpreter, which streams of a message for each token keep busy.
STREAMS_OF_A_PROCESS = 16
# Of an open loop with streams, in which the number of requests under way is unknown.
OPEN_PROCESSES = 4
# All clients of a load are connected by then.
CONNECT_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of a request: seconds after the load's begin at which it was sent and answered.

    In an open loop `sent` is when it arrived, also where its client was late. `first` is when its first token
    came, None where it is unknown. `failure` is empty unless there is no answer.
    """

    number: int
    sent: float
    first: float | None
    done: float
    tokens: tuple[int, ...] = ()
    failure: str = ""

    def after(self, begin: float) -> Outcome:
        """Return it with its times counted from `begin`."""
        first = None if self.first is None else self.first - begin
        return replace(self, sent=self.sent - begin, first=first, done=self.done - begin)


@dataclass(frozen=True)
class _Share:
    """The part of a load that one process sends: `clients` of a closed loop, 0: an open one."""

    side: Side
    load: Load
    requests: Sequence[Request]
    clients: int
    below: int


def run(side: Side, load: Load, requests: Sequence[Request], below: int) -> list[Outcome]:
    """Send all requests, whose prompts have tokens smaller than `below`; return outcomes in their order."""
    shares = _shares(side, load, requests, below)
    if len(shares) == 1:
        outcomes = _send(shares[0], threading.Barrier(1))
    else:
        context = multiprocessing.get_context("spawn")
        with context.Manager() as shared, ProcessPoolExecutor(len(shares), context) as pool:
            together = shared.Barrier(len(shares))
            running = [pool.submit(_send, share, together) for share in shares]
            outcomes = [outcome for each in running for outcome in each.result()]
    begin = min(outcome.sent for outcome in outcomes)
    return sorted((each.after(begin) for each in outcomes), key=lambda outcome: outcome.number)


def alone(side: Side, load: Load, requests: Sequence[Request], below: int) -> list[Outcome]:
    """Send requests one after the other, with nothing else running; return outcomes in their order."""
    with contextlib.closing(side.connect()) as connection:
        return [_ask(connection, load, each, below, time.monotonic()) for each in requests]


def _shares(side: Side, load: Load, requests: Sequence[Request], below: int) -> list[_Share]:
    """Divide a load among processes; each gets every so manieth request, and its own clients take turns."""
    count = 1
    if side.streamed:
        count = -(-load.clients // STREAMS_OF_A_PROCESS) if load.clients else OPEN_PROCESSES
    clients = [len(range(part, load.clients, count)) for part in range(count)]
    return [
        _Share(side, load, requests[part::count], own, below)
        for part, own in enumerate(clients)
        if requests[part::count]
    ]


def _send(share: _Share, together: threading.Barrier) -> list[Outcome]:
    """Send the requests of a share, from the moment at which all processes are connected."""
    send = _closed if share.clients else _open
    return send(share, together)


def _closed(share: _Share, together: threading.Barrier) -> list[Outcome]:
    turns: queue.SimpleQueue[Request] = queue.SimpleQueue()
    for request in share.requests:
        turns.put(request)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(contextlib.closing(share.side.connect())) for _ in range(share.clients)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(share.clients))
        together.wait(CONNECT_SECONDS)
        running = [pool.submit(lambda own: list(_in_turn(own, share, turns)), client) for client in clients]
        return [outcome for each in running for outcome in each.result()]


def _in_turn(client: Connection, share: _Share, turns: queue.SimpleQueue[Request]) -> Iterator[Outcome]:
    """Send one request after the other, until none is left."""
    while True:
        try:
            request = turns.get_nowait()
        except queue.Empty:
            return
        yield _ask(client, share.load, request, share.below)


def _open(share: _Share, together: threading.Barrier) -> list[Outcome]:
    """Send each request when it arrives, by a client that is free or a new one."""
    free: queue.SimpleQueue[Connection] = queue.SimpleQueue()

    def send(request: Request, arrived: float) -> Outcome:
        try:
            client = free.get_nowait()
        except queue.Empty:
            client = share.side.connect()
        try:
            return _ask(client, share.load, request, share.below, arrived)
        finally:
            free.put(client)

    with ThreadPoolExecutor(len(share.requests)) as pool:
        together.wait(CONNECT_SECONDS)
        begin, running = time.monotonic(), []
        for request in share.requests:
            time.sleep(max(0.0, begin + request.at - time.monotonic()))
            running.append(pool.submit(send, request, begin + request.at))
        connections = [each.result() for each in running]
    while not free.empty():
        free.get_nowait().close()
    return connections


def _ask(
    client: Connection, load: Load, request: Request, below: int, arrived: float | None = None
) -> Outcome:
    """Send a request, which `arrived` then or now; a failure is an outcome."""
    prompt = trace.tokens(load, request, below)
    sent = time.monotonic() if arrived is None else arrived
    try:
        answer = client.ask(prompt, request.answer)
    except FtbuildError as failed:
        return Outcome(request.number, sent, None, time.monotonic(), failure=str(failed))
    return Outcome(request.number, sent, answer.first, time.monotonic(), answer.tokens)

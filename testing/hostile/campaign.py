"""Hostile requests in their thousands against a server in a container: which of them end it, and how.

python -m testing.hostile.campaign IMAGE --http 100000 --grpc 100000 --seed 1
python -m testing.hostile.campaign IMAGE --replay http:12345 grpc:12346 frames:7
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import requests

from ftbuild import triton
from ftbuild.client import server_container
from ftbuild.client.server_container import Server
from ftbuild.errors import SmokeError
from testing.hostile import grpc_calls, http_requests, models
from testing.hostile.grpc_calls import Call
from testing.hostile.http_requests import Attempt

HTTP, GRPC, FRAMES = "http", "grpc", "frames"
# Between two looks whether the server lives and answers rightly.
BATCH = 200
WORKERS = 8
ANSWER_SECONDS = 2
SILENCE_SECONDS = 0.3
CALL_SECONDS = 5
SETTLE_SECONDS = 0.2
# A server on a busy machine may read a request only when so many others have followed.
LATE_REQUESTS = 5
ALIVE_SECONDS = 20
SHOWN_BYTES, SHOWN_REQUESTS, STACK_LINES = 600, 5, 40
Sent = tuple[str, int]


@dataclass(frozen=True)
class Kinds:
    """The kinds of requests of each protocol that are sent; none named: all."""

    http: Sequence[str] = ()
    grpc: Sequence[str] = ()


@dataclass(frozen=True)
class Death:
    """What ended a server: the requests, alone or together, and the server's last words."""

    guilty: Sequence[Sent]
    log: str
    kinds: Kinds

    def __str__(self) -> str:
        shown = [describe(sent, self.kinds) for sent in self.guilty[:SHOWN_REQUESTS]]
        if len(self.guilty) > len(shown):
            every = " ".join(f"{protocol}:{seed}" for protocol, seed in self.guilty)
            shown.append(f"together with others: {every}")
        return "\n".join([*shown, self.log])


@dataclass
class Result:
    """How many requests of each kind were sent, how they ended, and what ended a server."""

    sent: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    deaths: list[Death] = field(default_factory=list)
    seconds: float = 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.sent.items()))
        ends = ", ".join(f"{name} {count}" for name, count in sorted(self.ended.items()))
        lines = [f"{sum(self.sent.values())} requests in {self.seconds:.0f} s: {counts}", f"ended: {ends}"]
        return "\n".join([*lines, f"deaths: {len(self.deaths)}"])


def all_but(http: Sequence[str] = (), grpc: Sequence[str] = ()) -> Kinds:
    """Return all kinds but those."""
    return Kinds(
        [name for name in http_requests.KINDS if name not in http],
        [name for name in grpc_calls.KINDS if name not in grpc],
    )


def run(
    image: str,
    counts: Mapping[str, int],
    seed: int,
    *,
    kinds: Kinds = Kinds(),
    until: float = float("inf"),
    report: Callable[[str], None] = print,
) -> Result:
    """Send so many requests of each protocol to servers of an image; a new one follows each death.

    `until` is a moment of the monotonic clock after which no batch begins. A seed makes the same requests at
    each run.
    """
    result, rng, start = Result(), random.Random(seed), time.monotonic()
    left = dict(counts)
    while any(left.values()) and time.monotonic() < until:
        with running(image) as server:
            while any(left.values()) and time.monotonic() < until:
                protocol = rng.choices(list(left), list(left.values()))[0]
                batch = [(protocol, rng.getrandbits(48)) for _ in range(min(BATCH, left[protocol]))]
                left[protocol] -= len(batch)
                send_all(server, batch, kinds, result)
                wrong = fault(server)
                if wrong:
                    break
            else:
                continue
            log = f"{wrong}\n{last_words(server)}"
        death = _guilty(image, batch, kinds, log)
        result.deaths.append(death)
        report(f"a server ended:\n{death}")
    result.seconds = time.monotonic() - start
    return result


def replay(image: str, sent: Sequence[Sent], kinds: Kinds = Kinds()) -> str:
    """Send requests one after the other to a new server; return what is wrong then, "" for nothing."""
    with running(image) as server:
        for one in sent:
            _send(server, one, kinds)
            time.sleep(SETTLE_SECONDS)
        wrong = fault(server)
        return f"{wrong}\n{last_words(server)}" if wrong else ""


def describe(sent: Sent, kinds: Kinds = Kinds()) -> str:
    """Return one line on a request: protocol and seed, which repeat it, its kind, and how it begins."""
    made = _made(sent, kinds)
    if isinstance(made, Call):
        what = f"{made.method} {made.metadata!r} {b' '.join(made.messages)!r}"
    else:
        what = f"{made.end} {b''.join(made.parts)!r}"
    return f"{sent[0]}:{sent[1]} ({made.kind}): {what[:SHOWN_BYTES]}"


def _made(sent: Sent, kinds: Kinds) -> Attempt | Call:
    protocol, seed = sent
    if protocol == HTTP:
        return http_requests.attempt(seed, kinds.http)
    return grpc_calls.call(seed, kinds.grpc) if protocol == GRPC else grpc_calls.frames(seed)


@contextlib.contextmanager
def running(image: str) -> Iterator[Server]:
    """Run a server; one whose Python backend does not come up on a busy machine gets another try."""
    with tempfile.TemporaryDirectory(prefix="ftbuild-hostile-") as scratch, contextlib.ExitStack() as stack:
        repository = models.write(Path(scratch))
        for last in (False, False, True):
            try:
                server = stack.enter_context(server_container.serve(image, repository))
                break
            except SmokeError:
                if last:
                    raise
        yield server


def send_all(server: Server, batch: Sequence[Sent], kinds: Kinds, result: Result) -> None:
    """Send a batch by several threads, and count how each request ended."""
    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = pool.map(lambda sent: _send(server, sent, kinds), batch)
        for kind, end in outcomes:
            result.sent[kind] += 1
            result.ended[end] += 1


def _send(server: Server, sent: Sent, kinds: Kinds) -> tuple[str, str]:
    """Send one request, and return its kind and how it ended."""
    made = _made(sent, kinds)
    if isinstance(made, Call):
        return f"gRPC {made.kind}", call(server.grpc, made)
    address = server.http if sent[0] == HTTP else server.grpc
    return f"{'HTTP' if sent[0] == HTTP else 'gRPC'} {made.kind}", exchange(address, made)


def exchange(address: str, attempt: Attempt, silence: float = SILENCE_SECONDS) -> str:
    """Send an attempt and return how it ended; `silence` is after how many seconds there is no answer."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            for part in attempt.parts:
                connection.sendall(part)
            if attempt.end == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return "gone"
            if attempt.end == "close":
                connection.shutdown(socket.SHUT_WR)
            return _answer(connection, silence)
    except ConnectionRefusedError:
        return "refused connection"
    except OSError as failed:
        return type(failed).__name__


def _answer(connection: socket.socket, silence: float) -> str:
    """Read until the server is silent or closes; return the status of its first answer."""
    answer = b""
    connection.settimeout(silence)
    with contextlib.suppress(TimeoutError):
        while b"\r\n" not in answer and (part := connection.recv(65536)):
            answer += part
    line = answer.partition(b"\r\n")[0].split(b" ")
    if not answer:
        return "no answer"
    return (
        line[1].decode("ascii", "replace")
        if line[0].startswith(b"HTTP/") and len(line) > 1
        else "other bytes"
    )


_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]


def call(address: str, asked: Call) -> str:
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        path = f"{grpc_calls.SERVICE}{asked.method}"
        options: Any = {"timeout": CALL_SECONDS, "metadata": asked.metadata}
        try:
            if asked.streams:
                answers = channel.stream_stream(path)(iter(asked.messages), **options)
            else:
                answers = channel.unary_unary(path).future(asked.messages[0], **options)
            if asked.cancel_after is not None:
                if asked.answers:
                    collections.deque(itertools.islice(answers, asked.answers), maxlen=0)
                time.sleep(asked.cancel_after)
                answers.cancel()
                return "cancelled"
            if asked.streams:
                for _ in answers:
                    pass
            else:
                answers.result()
        except grpc.RpcError as failed:
            code = failed.code()
            return str(code.name)
        except (grpc.FutureCancelledError, ValueError) as failed:
            return type(failed).__name__
    return "OK"


def fault(server: Server) -> str:
    """Return what is wrong with a server: it has ended, is silent, or answers a right request wrongly."""
    deadline = time.monotonic() + ALIVE_SECONDS
    asked = http_requests.infer()
    failed: object = None
    while time.monotonic() < deadline:
        if not server.alive():
            return "the server has ended"
        try:
            answer = requests.post(
                f"{server.url}/v2/models/{models.ECHO}/infer", json=asked, timeout=ALIVE_SECONDS
            )
            found = {output["name"]: output["data"] for output in answer.json().get("outputs", [])}
            wanted = {f"OUT_{tensor['name']}": tensor["data"] for tensor in asked["inputs"]}
            return "" if found == wanted else f"a right request is answered by {answer.text[:500]}"
        except (OSError, ValueError) as broken:
            failed = broken
            time.sleep(0.5)
    return f"the server does not answer: {failed}"


def last_words(server: Server) -> str:
    """Return the stack that a server wrote as it ended, or the errors of its log."""
    logs = b"".join(server.container.get_logs()).decode("utf-8", "replace")
    _, signal, stack = logs.partition("Signal (")
    return "\n".join((signal + stack).splitlines()[:STACK_LINES]) or server.log_excerpt()


def _guilty(image: str, batch: Sequence[Sent], kinds: Kinds, log: str) -> Death:
    """Find what ended a server: the first request after which another one is gone, or one just before it."""
    with running(image) as server:
        for number, sent in enumerate(batch):
            _send(server, sent, kinds)
            # A client that does not wait for an answer is not told when its request has been read.
            time.sleep(SETTLE_SECONDS)
            if _gone(server):
                log = f"{fault(server)}\n{last_words(server)}"
                for suspect in batch[max(0, number - LATE_REQUESTS) : number + 1][::-1]:
                    if alone := replay(image, [suspect], kinds):
                        return Death([suspect], alone, kinds)
                return Death(batch[number::-1], log, kinds)
    return Death(batch, log, kinds)


def _gone(server: Server) -> bool:
    """Return whether nobody answers at the port, at once."""
    try:
        return not requests.get(f"{server.url}{triton.LIVE}", timeout=ALIVE_SECONDS).ok
    except OSError:
        return True


def _sent(text: str) -> Sent:
    protocol, _, seed = text.partition(":")
    return protocol, int(seed)


def main() -> int:
    """Run a campaign, or send single requests once more."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image")
    for protocol in (HTTP, GRPC, FRAMES):
        parser.add_argument(f"--{protocol}", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no batch later than that")
    parser.add_argument("--without", nargs="*", default=[], metavar="KIND")
    parser.add_argument("--replay", nargs="*", default=[], metavar="PROTOCOL:SEED", type=_sent)
    given = parser.parse_args()
    kinds = all_but(given.without, given.without)
    if given.replay:
        print(*(describe(sent, kinds) for sent in given.replay), sep="\n")
        wrong = replay(given.image, given.replay, kinds)
        print(wrong or "the server lives and answers")
        return bool(wrong)
    counts = {HTTP: given.http, GRPC: given.grpc, FRAMES: given.frames}
    until = time.monotonic() + 60 * given.minutes
    result = run(given.image, counts, given.seed, kinds=kinds, until=until)
    print(result)
    return bool(result.deaths)


if __name__ == "__main__":
    sys.exit(main())

"""A server of OpenAI's completions for CTranslate2, which has none: it computes together what waits.

python -m benchmarks.topics.traffic.batcher CHECKPOINT --port 8000 --rows 32

A batch is what came while the one before was computed, at most so many rows; no request joins it. Each answer
is sent when its own last token is there, not that of the batch.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.topics.inference.engine import Ctranslate2, Rows, Sizes

# As long as our server waits for more requests to be computed with the first.
WAIT_SECONDS = 0.002
Compute = Callable[[Rows, Sequence[int], Callable[[int, int], None]], None]


@dataclass(frozen=True)
class Waiting:
    """A request, and its tokens as they come."""

    prompt: Sequence[int]
    length: int
    tokens: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)

    def each(self) -> Iterator[int]:
        """Yield the tokens, each when it is there."""
        for _ in range(self.length):
            yield self.tokens.get()


class Batcher:
    """A queue of requests, of which up to `rows` are computed together by `compute`."""

    def __init__(self, compute: Compute, rows: int) -> None:
        self._compute = compute
        self._rows = rows
        self._waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()

    def put(self, prompt: Sequence[int], length: int) -> Waiting:
        """Return a new request, which is computed when its turn comes."""
        entry = Waiting(prompt, length)
        self._waiting.put(entry)
        return entry

    def serve(self) -> None:
        """Compute batch after batch; ends with the first failure."""
        while True:
            self.compute_one()

    def compute_one(self) -> int:
        """Wait for requests, compute a batch of them, and return its number of rows."""
        batch = [self._waiting.get()]
        until = time.monotonic() + WAIT_SECONDS
        while len(batch) < self._rows:
            try:
                batch.append(self._waiting.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                break

        def emit(row: int, token: int) -> None:
            batch[row].tokens.put(token)

        self._compute([each.prompt for each in batch], [each.length for each in batch], emit)
        return len(batch)


def server(batcher: Batcher, port: int) -> ThreadingHTTPServer:
    """Return a server on the loopback address that answers by `batcher`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b"", "text/plain")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            waiting = batcher.put(request["prompt"], request["max_tokens"])
            if not request.get("stream"):
                self._send(_choice(list(waiting.each())), "application/json")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for token in waiting.each():
                self._chunk(b"data: " + _choice([token]) + b"\n\n")
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _chunk(self, content: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # All clients connect at once.
        request_queue_size = 1024

    return Server(("127.0.0.1", port), Handler)


def _choice(tokens: Sequence[int]) -> bytes:
    return json.dumps({"choices": [{"token_ids": tokens}]}).encode()


def main() -> None:
    """Load the model, then serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows", type=int, default=32, help="of the largest batch (%(default)s)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--number", default="", help="float16 or float32; the default is the device's")
    options = parser.parse_args()
    engine = Ctranslate2(options.checkpoint, Sizes(0, options.rows), options.device, options.number)
    batcher = Batcher(engine.batch, options.rows)
    serving = server(batcher, options.port)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    batcher.serve()


if __name__ == "__main__":
    main()

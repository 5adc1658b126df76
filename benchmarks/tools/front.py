"""What the OpenAI front takes of a processor for each event of a stream, before a stand-in for Triton.

    python -m benchmarks.tools.front --other ../ftbuild-before --rounds 3

`--other` is another checkout (and `=PYTHON` its interpreter), measured in turn with this one, as is a bare
stream of FastAPI's. Processor time is the front's alone, user and system, with its processes for tokenizing.
Events come at the rate of the stand-in. Needs the extras front and bench.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testing import ROOT, bytelevel

_BARE = "FastAPI alone"
_PROMPT = "The moon is " * 20
_START_SECONDS = 120


@dataclass(frozen=True)
class Run:
    """One measured run: events and tokens that clients got, seconds of a processor and of a clock."""

    events: int
    tokens: int
    cpu: float
    wall: float


def main(arguments: Sequence[str]) -> None:
    """Measure all sides in turn, and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--other", action="append", default=[], metavar="CHECKOUT[=PYTHON]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two tokens of a stream")
    given = parser.parse_args(arguments)
    sides = {"this checkout": (ROOT, sys.executable)}
    for other in given.other:
        folder, _, python = other.partition("=")
        sides[other] = (Path(folder).resolve(), python or sys.executable)
    runs: dict[str, list[Run]] = {name: [] for name in (*sides, _BARE)}
    for _ in range(given.rounds):
        for name, (folder, python) in sides.items():
            with fronted(folder, python, given.pause) as (port, process):
                runs[name].append(measured(port, process, given.streams, given.tokens))
        with served([sys.executable, "-m", "benchmarks.tools.bare_stream"], given.pause) as (port, process):
            runs[_BARE].append(measured(port, process, given.streams, given.tokens))
    for name, found in runs.items():
        rates = [run.events / run.cpu for run in found]
        tokens = statistics.median(run.tokens / run.cpu for run in found)
        print(
            f"{name}: {statistics.median(rates):.0f} events ({min(rates):.0f} to {max(rates):.0f}) and "
            f"{tokens:.0f} tokens per CPU second; {found[-1].events} events in {found[-1].wall:.1f} s"
        )


@contextlib.contextmanager
def fronted(folder: Path, python: str, pause: float) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run the front of a checkout before a stand-in; yield its port and process."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        served([sys.executable, "-m", "benchmarks.tools.token_server"], pause) as (triton, _),
    ):
        tokenizer = bytelevel.write(Path(scratch) / "tokenizer")
        port = free_port()
        options = ["--triton", f"127.0.0.1:{triton}", "--tokenizer", str(tokenizer), "--name", "m"]
        command = [python, "-m", "ftbuild.front", *options, "--port", str(port), "--end-id", "257"]
        with started(command, folder, port) as process:
            yield port, process


@contextlib.contextmanager
def served(command: Sequence[str], pause: float) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a program with a port and a pause; yield the port and the process."""
    port = free_port()
    with started([*command, str(port), str(pause)], ROOT, port) as process:
        yield port, process


@contextlib.contextmanager
def started(command: Sequence[str], folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until it listens on a port, and end it."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise SystemExit(f"{' '.join(command[:3])} does not start")
        yield process
    finally:
        process.terminate()
        process.wait(60)


def measured(port: int, process: subprocess.Popen[bytes], streams: int, tokens: int) -> Run:
    """Ask for some streams at once; the first one, which warms up, does not count."""

    async def asked() -> Run:
        await asyncio.gather(*[stream(port, 3) for _ in range(4)])
        before, start = cpu_seconds(process.pid), time.monotonic()
        found = await asyncio.gather(*[stream(port, tokens) for _ in range(streams)])
        wall = time.monotonic() - start
        return Run(
            sum(events for events, _ in found),
            streams * tokens,
            cpu_seconds(process.pid) - before,
            wall,
        )

    return asyncio.run(asked())


async def stream(port: int, tokens: int) -> tuple[int, int]:
    """Return the events and bytes of one stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"model": "m", "prompt": _PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True}
    body = json.dumps(asked).encode()
    head = ["POST /v1/completions HTTP/1.1", "Host: a", "Content-Type: application/json", "Connection: close"]
    writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    answered = await reader.read(-1)
    writer.close()
    if b" 200 OK" not in answered[:20]:
        raise SystemExit(f"refused: {answered[:300]!r}")
    return answered.count(b"data: {"), len(answered)


def cpu_seconds(process: int) -> float:
    """Return user and system time of a process, and of those that it has started."""
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(entry.parent.name) == process or int(fields[1]) == process:
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def free_port() -> int:
    """Return a port of loopback that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1:])

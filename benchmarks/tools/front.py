"""What the OpenAI front takes of a processor for each event of a stream, before a stand-in for Triton.

    python -m benchmarks.tools.front

Three sides in turn: the front of an older commit, that of this checkout, and a bare stream of FastAPI's; some
two minutes in all. Processor time is the front's alone, user and system, with its processes for tokenizing.
Events come at the rate of the stand-in. Needs git, and the extras front and bench.
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

_OURS, _BARE = "this checkout", "FastAPI alone"
# The last commit before the front's speed was looked at.
_BEFORE = "411f44c"
_PROMPT = "The moon is " * 20
_START_SECONDS = 120


@dataclass(frozen=True)
class Run:
    """One measured run: events and tokens that clients got, and seconds of a processor."""

    events: int
    tokens: int
    cpu: float

    @property
    def rate(self) -> float:
        """Events per CPU second."""
        return self.events / self.cpu


def main(arguments: Sequence[str]) -> None:
    """Measure all sides in turn, and print each round and medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", default=_BEFORE, metavar="COMMIT", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--streams", type=int, default=32, help="at once (%(default)s)")
    parser.add_argument("--tokens", type=int, default=200, help="of a stream (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.04, help="seconds between two tokens (%(default)s)")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        older = stack.enter_context(checkout(options.before))
        bare = [sys.executable, "-m", "benchmarks.tools.bare_stream"]
        sides = {
            options.before: stack.enter_context(fronted(older, options.pause)),
            _OURS: stack.enter_context(fronted(ROOT, options.pause)),
            _BARE: stack.enter_context(served(bare, options.pause)),
        }
        runs: dict[str, list[Run]] = {name: [] for name in sides}
        for number in range(options.rounds):
            for name, (port, process) in sides.items():
                runs[name].append(measured(port, process, options.streams, options.tokens))
                print(f"round {number + 1}, {name}: {described(runs[name][-1:])}", flush=True)
    for name, runs_of_one in runs.items():
        print(f"{name}: {described(runs_of_one)}")
    for name in (options.before, _BARE):
        ratios = [run.rate / other.rate for run, other in zip(runs[_OURS], runs[name], strict=True)]
        print(f"{_OURS} / {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def described(runs: Sequence[Run]) -> str:
    """Return medians in words."""
    rate = statistics.median(run.rate for run in runs)
    tokens = statistics.median(run.tokens / run.cpu for run in runs)
    return f"{rate:,.0f} events and {tokens:,.0f} tokens per CPU second"


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the package of an older commit."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit, "ftbuild", "ftserve"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "--extract", "--directory", folder], input=packed, check=True)
        yield Path(folder)


@contextlib.contextmanager
def fronted(folder: Path, pause: float) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run the front of a checkout before a stand-in; yield its port and process."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        served([sys.executable, "-m", "benchmarks.tools.token_server"], pause) as (triton, _),
    ):
        tokenizer = bytelevel.write(Path(scratch) / "tokenizer")
        port = free_port()
        options = ["--triton", f"127.0.0.1:{triton}", "--tokenizer", str(tokenizer), "--name", "m"]
        command = [sys.executable, "-m", "ftserve.front", *options, "--port", str(port), "--end-id", "257"]
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
    """Ask for some streams at once, after some short ones that warm up."""

    async def one_run() -> Run:
        await asyncio.gather(*[stream(port, 3) for _ in range(4)])
        before = cpu_seconds(process.pid)
        events = await asyncio.gather(*[stream(port, tokens) for _ in range(streams)])
        return Run(sum(events), streams * tokens, cpu_seconds(process.pid) - before)

    return asyncio.run(one_run())


async def stream(port: int, tokens: int) -> int:
    """Return the number of events of one stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = {"model": "m", "prompt": _PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True}
    body = json.dumps(request).encode()
    head = ["POST /v1/completions HTTP/1.1", "Host: a", "Content-Type: application/json", "Connection: close"]
    writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    answered = await reader.read(-1)
    writer.close()
    if b" 200 OK" not in answered[:20]:
        raise SystemExit(f"refused: {answered[:300]!r}")
    return answered.count(b"data: {")


def cpu_seconds(process: int) -> float:
    """Return what the threads of a process, and of those that it has started, have had of processors."""
    family = [
        entry.parent
        for entry in Path("/proc").glob("[0-9]*/stat")
        if process in (int(entry.parent.name), _parent(entry))
    ]
    # In nanoseconds (proc(5), schedstat); stat counts in hundredths of a second.
    times = [each.read_text() for folder in family for each in folder.glob("task/*/schedstat")]
    return sum(int(time.split()[0]) for time in times) / 1e9


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def free_port() -> int:
    """Return a free port on the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1:])

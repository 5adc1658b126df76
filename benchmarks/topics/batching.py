"""Batching: answers of one server per second to ever more clients, by how long a request waits for others.

On a GPU machine with few packages: python -m benchmarks.topics.batching smoke-job.json --out FOLDER
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import files, origin, smoked
from benchmarks.harness.chart import Lines
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.origin import Measured
from benchmarks.harness.workspace import Workspace, measured
from ftbuild.text.reporter import to_stderr

if TYPE_CHECKING:
    from ftbuild.gates.smoke.job import Job
    from ftbuild.gates.smoke.served import Served

NAME = "batching"
CLIENTS = (1, 2, 4, 8, 16, 32)
# 50 was the delay of upstream's template, 2 is ours.
QUEUE_MS = (0, 2, 5, 50)
SHIPPED_MS = 2
SECONDS = 1.5
FAMILY = "gpt"


@dataclass(frozen=True)
class Point:
    """What so many clients got, each with one request at a time; the median latency in seconds."""

    queue_ms: int
    clients: int
    tokens_per_second: float
    latency: float


def needs(workspace: Workspace) -> str | None:
    """Require the job of a smoke test on a GPU."""
    if not workspace.real:
        return "the sample's models do not compute on a GPU (--real)"
    file = _job_file(workspace)
    return None if file.exists() else f"no smoke test of {workspace.plan().cell.id} ran here: invoke smoke"


def run(workspace: Workspace) -> Result:
    """Measure the models of the cell's smoke test."""
    from ftbuild.gates.smoke import job

    file = _job_file(workspace)
    return _result(workspace, job.read(file), smoked.cells(file.parent) or (measured(workspace.plan()),))


def _job_file(workspace: Workspace) -> Path:
    from ftbuild.cli.options import work_folder
    from ftbuild.gates.smoke import gate

    return workspace.plan().folder(work_folder()) / gate.JOB


def _result(workspace: Workspace, task: Job, cells: Iterable[Measured]) -> Result:
    points = measure(task)
    data = {"points": list(map(asdict, points))}
    return workspace.result(NAME, figures(points), data, [chart(points)], cells=cells)


def measure(task: Job) -> list[Point]:
    """Serve the model in fp16 once for each delay, and ask it."""
    from ftbuild.gates.smoke.job import Variant
    from ftbuild.gates.smoke.served import serving
    from ftbuild.models.config_pbtxt import Limits

    points = []
    for queue_ms in QUEUE_MS:
        with serving(task, Variant(FAMILY, "fp16"), Limits(queue_ms=queue_ms)) as served:
            for clients in CLIENTS:
                points.append(_ask(served, queue_ms, clients))
                to_stderr(str(points[-1]))
    return points


def _ask(served: Served, queue_ms: int, clients: int) -> Point:
    from ftbuild.client import golden

    with ThreadPoolExecutor(clients) as pool:
        start = time.monotonic()
        taken = [each for counts in pool.map(lambda n: _client(served, n), range(clients)) for each in counts]
        seconds = time.monotonic() - start
    return Point(queue_ms, clients, len(taken) * golden.LENGTH / seconds, statistics.median(taken))


def _client(served: Served, number: int) -> list[float]:
    """Return the seconds that each answer took."""
    from ftbuild.client import golden
    from ftbuild.gates.smoke.served import prompts
    from ftbuild.models import config_pbtxt

    requests = [served.dialect.request([p], golden.LENGTH, runtime_top_k=1) for p in prompts("eight")]
    taken: list[float] = []
    client, end = served.connect("grpc"), time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            begin = time.monotonic()
            client.infer(config_pbtxt.MODEL, requests[(number + len(taken)) % len(requests)])
            taken.append(time.monotonic() - begin)
    finally:
        client.close()
    return taken


def figures(points: Sequence[Point]) -> list[Figure]:
    """Return what many clients gain over one, and what one loses by the delay."""
    at = {(point.queue_ms, point.clients): point for point in points}
    how = f"measured, {SECONDS} s each, tiny {FAMILY} in fp16"
    alone, many = at[SHIPPED_MS, 1], at[SHIPPED_MS, max(CLIENTS)]
    gain = many.tokens_per_second / alone.tokens_per_second
    gains = [Figure(Topic.LOAD, f"tokens/s of {max(CLIENTS)} clients / of one", gain, "", None, how)]
    for queue_ms in QUEUE_MS:
        what = f"one client, requests wait {queue_ms} ms for others: median latency"
        gains.append(Figure(Topic.LOAD, what, at[queue_ms, 1].latency, "s", None, how))
    return gains


def chart(points: Sequence[Point]) -> Lines:
    """Return tokens per second against clients, a curve for each delay."""
    series: Mapping[str, tuple[tuple[float, float], ...]] = {
        f"{queue_ms} ms": tuple((p.clients, p.tokens_per_second) for p in points if p.queue_ms == queue_ms)
        for queue_ms in QUEUE_MS
    }
    title = "Tokens per second, by the time that a request waits for others"
    return Lines("batching", title, "clients, one request each", "tokens/s", series, across_by_powers=True)


def main() -> None:
    """Measure with the job of a smoke test, and write the record."""
    from ftbuild.gates.smoke import job

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    read = files.holding("a job of the smoke suite", lambda file: (file, job.read(file)))
    parser.add_argument("job", type=read, metavar="JOB")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    origin.add_option(parser)
    options = parser.parse_args()
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    file, task = options.job
    cells = tuple(options.cell) or smoked.cells(file.parent)
    print(_result(workspace, task, cells).write(options.out))


if __name__ == "__main__":
    main()

"""The edges of ninja's last run, from its `.ninja_log`.

The format is ninja's own (src/build_log.cc): a signature, then one line per output with start and end in
milliseconds since the run began, mtime, path and hash of the command, separated by tabs. Versions 5 (ninja
1.11), 6 and 7 differ in how the hash is computed. Runs are appended, each in the order in which its edges
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ftbuild.nightly.record import Unit

_COLUMNS = 5


@dataclass(frozen=True)
class _Line:
    start: int
    end: int
    output: str
    command: str


def units(log: str) -> tuple[Unit, ...]:
    """Return the edges of the last run by start; none for a text that is not a ninja log.

    An edge with several outputs has a line for each: the first names it. A line that was cut off when ninja
    was killed is left out.
    """
    edges: dict[tuple[int, int, str], _Line] = {}
    for line in _last_run(_lines(log)):
        edges.setdefault((line.start, line.end, line.command), line)
    first = min((line.start for line in edges.values()), default=0)
    edges_run = [Unit((e.start - first) / 1000, (e.end - first) / 1000, e.output) for e in edges.values()]
    return tuple(sorted(edges_run, key=lambda unit: (unit.start, unit.end)))


def slots(units: Sequence[Unit]) -> list[int]:
    """Return the job of each unit, from 0, if the lowest free job always takes the next unit."""
    free_at: list[float] = []
    lanes = [0] * len(units)
    for index in sorted(range(len(units)), key=lambda i: (units[i].start, units[i].end)):
        unit = units[index]
        lane = next((n for n, end in enumerate(free_at) if end <= unit.start), len(free_at))
        free_at[lane : lane + 1] = [unit.end]
        lanes[index] = lane
    return lanes


def _lines(log: str) -> Iterator[_Line]:
    signature, _, body = log.partition("\n")
    if not signature.startswith("# ninja log v"):
        return
    for text in body.splitlines():
        columns = text.split("\t")
        if len(columns) == _COLUMNS and columns[0].isdecimal() and columns[1].isdecimal():
            start, end, _, output, command = columns
            yield _Line(int(start), int(end), output, command)


def _last_run(lines: Iterable[_Line]) -> list[_Line]:
    """Return the lines since the clock went back or an output was made again: either begins a run."""
    run: list[_Line] = []
    outputs: set[str] = set()
    for line in lines:
        if line.output in outputs or (run and line.end < run[-1].end):
            run, outputs = [], set()
        run.append(line)
        outputs.add(line.output)
    return run

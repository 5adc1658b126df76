"""Processes that work at the same time, each with temporary files of its own."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

T = TypeVar("T")

# Of a process of the pool: what it works with, what is open for it, and whether the caller reads no more.
_work: Callable[[int], Any]
_OPEN = ExitStack()
_closed: Event
# Neighbours are noticed by the same tests, which then run first.
TOGETHER = 10


def outcomes(
    working: Callable[[], AbstractContextManager[Callable[[int], T]]],
    count: int,
    jobs: int,
    together: int = TOGETHER,
) -> Iterator[tuple[int, T]]:
    """Yield each number below `count` with its outcome, as `jobs` processes find out.

    Each process enters `working` once, for a function from a number to the outcome. Numbers come in groups in
    a random order, so that what is known when a run is cut short is a fair sample; where there is one job, in
    this process and in their own order. When the caller reads no more, each process ends after its number.
    """
    if jobs == 1:
        with working() as work:
            yield from ((number, work(number)) for number in range(count))
        return
    groups = [range(first, min(first + together, count)) for first in range(0, count, together)]
    random.Random(0).shuffle(groups)
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        context = get_context("fork")
        closed = context.Event()
        pool = ProcessPoolExecutor(jobs, context, _begin, (working, folder, closed))
        try:
            for done in as_completed([pool.submit(_do, group) for group in groups]):
                yield from done.result()
        finally:
            closed.set()
            pool.shutdown(cancel_futures=True)


def _begin(
    working: Callable[[], AbstractContextManager[Callable[[int], Any]]], folder: str, closed: Event
) -> None:
    global _work, _closed
    _closed = closed
    # Else dozens of runs of pytest would look for the next free name in one folder.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="", dir=folder)
    tempfile.tempdir = None
    _work = _OPEN.enter_context(working())


def _do(numbers: Sequence[int]) -> list[tuple[int, Any]]:
    return [(number, _work(number)) for number in numbers if not _closed.is_set()]

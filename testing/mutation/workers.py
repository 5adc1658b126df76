"""Processes that try mutants at the same time, each with tests and temporary files of its own."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from multiprocessing import get_context

# Of a process of the pool: what it tries with, and what is open for it.
_survives: Callable[[int], bool]
_OPEN = ExitStack()
# Neighbours are noticed by the same tests, which then run first.
_TOGETHER = 10


def outcomes(
    trying: Callable[[], AbstractContextManager[Callable[[int], bool]]], count: int, jobs: int
) -> Iterator[tuple[int, bool]]:
    """Yield each number below `count` and whether its mutant survives, as `jobs` processes find out.

    Each process enters `trying` once, for a function from a number to the answer. Numbers come in groups in a
    random order, so that what is known when a run is cut short is a fair sample.
    """
    groups = [range(first, min(first + _TOGETHER, count)) for first in range(0, count, _TOGETHER)]
    random.Random(0).shuffle(groups)
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        pool = ProcessPoolExecutor(jobs, get_context("fork"), _begin, (trying, folder))
        try:
            for done in as_completed([pool.submit(_try, group) for group in groups]):
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(trying: Callable[[], AbstractContextManager[Callable[[int], bool]]], folder: str) -> None:
    global _survives
    # Else dozens of runs of pytest would look for the next free name in one folder.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="", dir=folder)
    tempfile.tempdir = None
    _survives = _OPEN.enter_context(trying())


def _try(numbers: Sequence[int]) -> list[tuple[int, bool]]:
    return [(number, _survives(number)) for number in numbers]

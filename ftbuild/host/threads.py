"""Calls that wait for servers and programs, made side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ftbuild.host import shell

T = TypeVar("T")

# Enough for the servers of all repositories; what reads a cache is held up by processors before.
_MOST = 16


def results(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the calls return, made side by side. After a failure no other starts; Ctrl-C ends all."""
    with ThreadPoolExecutor(max(1, min(len(calls), _MOST))) as pool:
        try:
            running = [pool.submit(call) for call in calls]
            return [done.result() for done in running]
        except BaseException as ended:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(ended, KeyboardInterrupt):
                shell.interrupt()
            raise

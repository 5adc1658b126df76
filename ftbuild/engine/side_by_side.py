"""Works side by side, whose containers end with the first failure of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, TypeVar

from ftbuild.engine import orphans
from ftbuild.host import shell

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

# What makes a model takes a gigabyte (reference.py).
MAX_AT_ONCE = 8


def run(client: docker.DockerClient, works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all works, on each processor one at a time, and return what they return.

    The first that fails ends the containers of the others, and Ctrl-C their programs, too.
    """
    pool = ThreadPoolExecutor(min(MAX_AT_ONCE, len(os.sched_getaffinity(0))))
    try:
        running = [pool.submit(work) for work in works]
        for done in as_completed(running):
            done.result()
        return [done.result() for done in running]
    except BaseException as ended:
        pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(ended, KeyboardInterrupt):
            shell.interrupt()
        orphans.remove_own(client)
        raise
    finally:
        pool.shutdown()

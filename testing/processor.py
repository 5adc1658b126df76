"""Processor time of the programs that a test runs, which other work on the machine hardly changes."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable


def seconds(run: Callable[[], object]) -> float:
    """Return the processor seconds (user and system) of the child processes that `run` waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_seconds() -> float:
    """Return the processor seconds of a Python that imports what every command needs."""
    needed = [sys.executable, "-c", "import invoke, pydantic, yaml"]
    return min(seconds(lambda: subprocess.run(needed, check=True)) for _ in range(3))

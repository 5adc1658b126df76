"""Processor time of the programs that a test runs, which other work on the machine hardly changes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds(run: Callable[[], object]) -> float:
    """Return the processor seconds (user and system) of the child processes that `run` waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_process(pid: int) -> tuple[float, float]:
    """Return the processor seconds of a process, and of its children that have ended (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, childrens_user, childrens_system = map(int, fields[11:15])
    return (user + system) / _TICKS, (childrens_user + childrens_system) / _TICKS


def start_seconds() -> float:
    """Return the processor seconds of a Python that imports what every command needs."""
    needed = [sys.executable, "-c", "import invoke, pydantic, yaml"]
    return min(seconds(lambda: subprocess.run(needed, check=True)) for _ in range(3))

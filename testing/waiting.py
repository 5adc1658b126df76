"""Waiting for what another process does.

A test never counts on how soon that is: a busy machine may take a hundred times as long as an idle one.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 100.0
# Of the processor's time, what looking may take: programs that a test waits for need the rest.
LOOKING = 0.1


def until(is_so: Callable[[], object], seconds: float = SECONDS, *, pause: float = 0.02) -> bool:
    """Wait until a condition is true, at most so many seconds; return whether it is.

    It is looked at every `pause` seconds, and less often where looking is work.
    """
    deadline = time.monotonic() + seconds
    while True:
        before = time.thread_time()
        if is_so():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(max(pause, (time.thread_time() - before) / LOOKING))


def until_up(process: subprocess.Popen[Any], is_up: Callable[[], object], log: Path) -> None:
    """Wait until a server is up; its log is the message where it ends before, or takes too long."""
    assert until(lambda: process.poll() is not None or is_up()), log.read_text()
    assert process.poll() is None, log.read_text()


def listens(host: str, port: int) -> bool:
    """Return whether a server accepts connections at this port."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True

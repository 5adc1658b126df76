"""Signals that end a command: Ctrl-C, a terminal that is closed, a CI system that cancels.

The first one is reported at once and raises KeyboardInterrupt, so that a command ends its programs and cleans
up. After Ctrl-C it has seconds for that: a thread that waits for a server, or an engine that is stuck, must
not keep the user. What is left then is what a killed command leaves, and the next one removes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ftbuild.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A user is kept for five seconds at most.
CLEAN_UP_SECONDS = 4.2
# Ctrl-C comes twice where both a terminal and a program that started this one send it.
_SAME_SECONDS = 0.5
_Handler = Callable[[int, FrameType | None], object]
_by_force: list[Callable[[], object]] = []


class _Came:
    """The signal that ended this command, if any."""

    number: int | None = None


def on_forced_end(act: Callable[[], object]) -> None:
    """Call `act` before a command ends without having cleaned up."""
    _by_force.append(act)


def by_ctrl_c() -> bool:
    """Return whether Ctrl-C is what ends this command, which then has `CLEAN_UP_SECONDS`."""
    return _Came.number == signal.SIGINT


@contextmanager
def ending() -> Iterator[None]:
    """Let the signals raise KeyboardInterrupt, once, within the block; ignored ones stay ignored (nohup).

    SIGTERM and SIGHUP come again while the command cleans up: a closed terminal sends SIGHUP, and so does its
    shell. Another Ctrl-C ends the command at once.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    handled = [
        number for number in ENDING if before[number] is not signal.SIG_IGN or number == signal.SIGTERM
    ]
    for number in handled:
        signal.signal(number, _first(handled))
    try:
        yield
    finally:
        if _Came.number is None:
            for number in handled:
                signal.signal(number, before[number])


def _first(handled: list[signal.Signals]) -> _Handler:
    def first(number: int, frame: FrameType | None) -> None:
        came, _Came.number = time.monotonic(), number

        def again(repeated: int, frame: FrameType | None) -> None:
            if repeated == signal.SIGINT and time.monotonic() > came + _SAME_SECONDS:
                _end_by_force()

        for each in handled:
            signal.signal(each, again)  # not SIG_IGN, which children would inherit
        if number == signal.SIGINT:
            threading.Thread(target=_end_late, daemon=True).start()
            _say("interrupted: ending what runs; Ctrl-C again ends it at once")
        signal.default_int_handler(number, frame)

    return first


def _end_late() -> None:
    time.sleep(CLEAN_UP_SECONDS)
    _end_by_force()


def _end_by_force() -> None:
    for act in _by_force:
        with contextlib.suppress(Exception):
            act()
    _say("interrupted: some of it may still run; the same command resumes")
    os._exit(Interrupted.exit_code)


def _say(line: str) -> None:
    """Write a line to standard error, past its buffer: a signal may have come in the middle of a write."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stderr.fileno()
        start = "\r\n" if os.isatty(descriptor) else ""
        os.write(descriptor, f"{start}{line}\n".encode())


@contextmanager
def deferred() -> Iterator[None]:
    """Hold signals that end a command back until the end of the block; only the main thread gets any."""
    came: list[tuple[int, FrameType | None]] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: came.append((number, frame)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for sign, frame in came:
        handlers[signal.Signals(sign)](sign, frame)

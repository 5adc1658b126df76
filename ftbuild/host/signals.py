"""Signals that end a command: Ctrl-C, a terminal that is closed, a CI system that cancels."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_as_on_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, once: they come again while the command cleans up.

    A closed terminal sends SIGHUP, and its shell sends another one. Under nohup, SIGHUP stays ignored.
    """
    signal.signal(signal.SIGTERM, _once)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _once)


def _once(number: int, frame: FrameType | None) -> None:
    signal.signal(number, lambda number, frame: None)  # not SIG_IGN, which children would inherit
    signal.default_int_handler(number, frame)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold signals that end a command back until the end of the block; only the main thread gets any."""
    came: list[tuple[int, FrameType | None]] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    ours = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in ours:
            signal.signal(number, lambda number, frame: came.append((number, frame)))
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    for sign, frame in came:
        ours[signal.Signals(sign)](sign, frame)

"""A watch over a builder while it builds.

A host without power closes no connection, and buildx would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

EVERY_SECONDS = 20.0
# A machine whose cores all compile may answer late: this is two minutes, and the time of the questions.
PATIENCE = 6


class Watch:
    """What a watch has seen: `given_up` is set once the builder was silent too often, `why` says how."""

    def __init__(self) -> None:
        self.given_up = Event()
        self.why = ""


@contextmanager
def over(builder: str, silence: Callable[[str], str], every: float = EVERY_SECONDS) -> Iterator[Watch]:
    """Ask a builder whether it answers, until the end of the context; one without a name is not probed."""
    seen, over = Watch(), Event()

    def look() -> None:
        times = 0
        while times < PATIENCE and not over.wait(every):
            why = silence(builder)
            times = times + 1 if why else 0
            seen.why = why
        if times == PATIENCE:
            seen.given_up.set()

    looking = Thread(target=look, name=f"watch over {builder}")
    if builder:
        looking.start()
    try:
        yield seen
    finally:
        over.set()
        if builder:
            looking.join()

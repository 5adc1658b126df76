"""The cells of a run that wait for a free builder, and those that a lost builder gives back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition

from ftbuild.nightly.record import CellRecord
from ftbuild.plan import Plan


@dataclass(frozen=True)
class Turn:
    """A cell's turn on a builder, with its record so far if builders were `lost` while they built it."""

    plan: Plan
    record: CellRecord | None = None
    lost: tuple[str, ...] = ()


class Waiting:
    """The waiting cells in the order of their start; safe for threads.

    A builder that takes a turn either ends it or gives it back. A free builder waits as long as another one
    may still give a cell back.
    """

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._turns = deque(Turn(plan) for plan in plans)
        self._running = 0
        self._lost: set[str] = set()
        self._closed = False
        self._changed = Condition()

    def take(self, builder: str) -> Turn | None:
        """Return the next turn for a builder, or None when it is to do nothing more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or builder in self._lost or self._turns or not self._running
            )
            if self._closed or builder in self._lost or not self._turns:
                return None
            self._running += 1
            return self._turns.popleft()

    def end(self, back: Turn | None = None) -> None:
        """End a turn; `back` is next instead, on any builder that is left."""
        with self._changed:
            self._running -= 1
            if back:
                self._turns.appendleft(back)
            self._changed.notify_all()

    def lose(self, builder: str) -> bool:
        """Give a builder no more turns; return whether that is new."""
        with self._changed:
            is_new = builder not in self._lost
            self._lost.add(builder)
            self._changed.notify_all()
            return is_new

    def close(self) -> bool:
        """Give out no more turns; return whether that is new."""
        with self._changed:
            is_new, self._closed = not self._closed, True
            self._changed.notify_all()
            return is_new

    def left(self) -> tuple[Turn, ...]:
        """Return the turns that no builder has taken, none after `close`."""
        with self._changed:
            return () if self._closed else tuple(self._turns)

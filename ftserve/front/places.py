"""How much is done at once: answers, and bodies that are being read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ftserve.front import limits
from ftserve.front.failures import busy


class Places:
    """The places of requests that are being answered."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    def require(self) -> None:
        """Raise Failure (429) when none is free."""
        if self._taken >= self._limit:
            raise busy(f"{self._limit} answers are being computed")

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take a place; Failure (429) when none is free."""
        self.require()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class Bodies:
    """The memory of bodies that are being read, and of what is made of them until it is token ids."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the size of the largest one."""
        self.left = max_bytes * limits.MAX_BODIES

    @contextlib.contextmanager
    def held(self) -> Iterator[Held]:
        """Count the bytes of one body."""
        held = Held(self)
        try:
            yield held
        finally:
            held.give_back()


class Held:
    """The bytes of one body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    def take(self, size: int) -> None:
        """Count bytes that have come; Failure (429) where those of all bodies are too many."""
        if size > self._bodies.left:
            raise busy("too many requests are being read")
        self._bodies.left -= size
        self._size += size

    def give_back(self) -> None:
        """Count them no longer."""
        self._bodies.left += self._size
        self._size = 0

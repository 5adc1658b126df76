"""Pieces of bytes as a file, for readers that want one."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any


class PieceStream(io.RawIOBase):
    """What an iterable yields, read in order; nothing is kept that was read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._left = iter(pieces), memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer from one piece, and return how much; 0 after the last one."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

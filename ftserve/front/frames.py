"""Frames of HTTP/2 as they come: those of data apart from the others, and the windows that they fill.

h2 takes longer for a frame of data than all the rest of a token together (benchmarks/README.md, The OpenAI
front), and nearly all that comes of a stream of tokens are such frames. So they go past it. The sections are
RFC 9113's. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# Length in 24 bits, type, flags, stream (4.1).
_HEAD = struct.Struct(">BHBBI")
_DATA, _WINDOW_UPDATE = 0, 8
# The largest that a server may send where nothing else was agreed (4.2).
_MAX = 1 << 14


class Frames:
    """The frames of a connection, whatever parts their bytes come in."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, received: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the stream and the content of frames of data, and 0 and the whole of others, in their order.

        Data with a flag, padded or the last of its stream, are among the others, and so is what is no frame.
        """
        known = self._rest + received if self._rest else received
        start, end = 0, len(known)
        while end - start >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(known, start)
            size = high << 16 | low
            content = start + _HEAD.size
            following = content + size
            if size > _MAX:
                following = end
            elif following > end:
                break
            if kind == _DATA and not flags and stream and size <= _MAX:
                yield stream, known[content:following]
            else:
                yield 0, known[start:following]
            start = following
        self._rest = known[start:]


class Window:
    """What a server may still send of a stream, or of the connection, which is stream 0 (5.2)."""

    def __init__(self, stream: int, size: int) -> None:
        self._stream = stream
        self._half = size // 2
        self._taken = 0

    def take(self, size: int) -> bytes:
        """Note that so many bytes have come; return the frame that opens the window again, or nothing yet."""
        self._taken += size
        if self._taken < self._half:
            return b""
        taken, self._taken = self._taken, 0
        return _HEAD.pack(0, 4, _WINDOW_UPDATE, 0, self._stream) + taken.to_bytes(4, "big")

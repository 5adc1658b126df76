"""Pieces of bytes as a file."""

from __future__ import annotations

import io
import time

from ftbuild.publishing.piece_stream import PieceStream


def test_the_pieces_come_in_order_whatever_is_read_at_a_time() -> None:
    pieces = [b"", b"one", b"two" * 5_000, b"", b"three"]
    for size in (1, 7, 8192, 100_000):
        stream = io.BufferedReader(PieceStream(pieces))
        assert b"".join(iter(lambda: stream.read(size), b"")) == b"".join(pieces)  # noqa: B023


def test_a_large_piece_is_read_in_small_ones_without_copying_the_rest() -> None:
    """What is left was copied at each read, which took most of the comparison of two images."""
    stream = io.BufferedReader(PieceStream([bytes(32 << 20)]))
    start = time.process_time()
    while stream.read(8192):
        pass
    assert time.process_time() - start < 1

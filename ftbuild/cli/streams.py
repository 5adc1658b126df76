"""Standard output and error that survive a reader who leaves, a terminal that is closed, and being closed.

Everything that commands print passes here, so text of others is made harmless here: names in records of holes
and SBOMs, words of servers, logs of programs. Only a program that draws on the terminal itself does not.

A command goes on when nobody reads its output any more (`| head`): its work and its exit code stay what they
are. One whose terminal is closed ends, and cleans up first. Where standard output cannot be written, on a
full disk for instance, a command fails; messages that cannot be written are dropped.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ftbuild.cli import hints
from ftbuild.text import terminal

# A pipe without a reader, a terminal that was closed.
_GONE = (errno.EPIPE, errno.EIO)


class _Tolerant:
    """A text stream without control codes, which discards what it is given once its reader has gone.

    One for `messages` discards what cannot be written for any other reason, too.
    """

    def __init__(self, stream: TextIO, *, messages: bool) -> None:
        self._stream = stream
        self._messages = messages

    def write(self, text: str) -> int:
        """Write without control codes, or discard."""
        self.draw(terminal.safe(hints.printed(text)))
        return len(text)

    def draw(self, text: str) -> None:
        """Write as it is, or discard: for what has colours, and quotes others without their control codes."""
        with self._tolerated():
            self._stream.write(text)

    def flush(self) -> None:
        """Flush, or discard."""
        with self._tolerated():
            self._stream.flush()

    @property
    def drawing(self) -> TextIO:
        """The stream for what draws on a terminal, and quotes nobody."""
        return self._stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _tolerated(self) -> Iterator[None]:
        try:
            yield
        except OSError as failed:
            self._discard()
            if failed.errno not in _GONE and not self._messages:
                raise

    def _discard(self) -> None:
        # What is left in the buffer is written when Python ends: it needs somewhere to go.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def prepare() -> None:
    """Make both streams tolerant, and standard output line-buffered: a CI log shows each line at once."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, _Tolerant):
            continue
        if stream is None:  # closed by the caller: `>&-`
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  lives as long as the program
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
        setattr(sys, name, _Tolerant(stream, messages=name == "stderr"))

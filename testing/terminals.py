"""A terminal of its own for a program, with keys that a test presses and the times of what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

CTRL_C = b"\x03"
# What a user is promised after Ctrl-C (docs/exit-codes.md).
SAID_SECONDS, OVER_SECONDS = 1.0, 5.0
ROWS, COLUMNS = 40, 120


@dataclass
class Terminal:
    """A terminal with a program in its foreground; what it shows, with the time of each part."""

    process: subprocess.Popen[bytes]
    end: int
    parts: list[tuple[float, bytes]] = field(default_factory=list)

    def read(self) -> None:
        """Collect what is shown, until the program's end of the terminal is closed."""
        with contextlib.suppress(OSError):
            while content := os.read(self.end, 65536):
                self.parts.append((time.monotonic(), content))

    def press(self, key: bytes) -> float:
        """Press a key; return the time."""
        os.write(self.end, key)
        return time.monotonic()

    def time_of(self, words: bytes) -> float | None:
        """When the terminal first showed some words."""
        shown = b""
        for moment, content in tuple(self.parts):
            shown = (shown + content)[-100_000:]
            if words in shown:
                return moment
        return None


@contextlib.contextmanager
def started(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Start a program in the foreground of a new terminal; it is killed at the end of the block."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=prepare,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    Thread(target=terminal.read, daemon=True).start()
    try:
        yield terminal
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)

"""Signals before a command begins: for some tenths of a second there are only modules to import.

Loaded before all others, so it imports as little as it can. `host/signals.py` has what follows.
"""

import os
import signal
import sys

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# As Interrupted in errors.py.
_CODE = 130


def listen() -> None:
    """Let a signal end the program `invoke` as it ends a command; in other programs nothing changes."""
    if not _is_invoke():
        return
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end)


def _is_invoke() -> bool:
    """Return whether this program is `invoke`, by its script or by `python -m invoke`."""
    folder, name = os.path.split(sys.argv[0])
    return name in ("invoke", "inv") or (name == "__main__.py" and os.path.basename(folder) == "invoke")  # noqa: PTH119


def _end(number: int, frame: object) -> None:
    """End at once: nothing has begun. An exception might be caught by whatever is being imported."""
    try:
        start = "\r\n" if os.isatty(2) else ""
        os.write(2, f"{start}interrupted: the same command resumes\n".encode())
    except OSError:
        pass
    os._exit(_CODE)

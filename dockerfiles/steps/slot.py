#!/usr/bin/env -S python3 -I -S
"""Run a command in one of JOBS slots, which all builds on this engine share.

Usage: slot.py COMPILER ARGUMENT...

A slot is a file lock in the folder SLOTS, so the kernel frees it however its holder ends. Appends a line to
SLOT_LOG, separated by tabs: start and end (milliseconds since 1970), slot, output, CPU seconds, peak memory
of the largest process (bytes). The command runs with the library COMPILER_PRELOAD, if set, preloaded.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

SLOTS = os.environ.get("SLOTS") or "/slots"
POLL_SECONDS = 0.02


def _open(name: str) -> int:
    return os.open(f"{SLOTS}/{name}", os.O_WRONLY | os.O_CREAT, 0o644)


def take(jobs: int) -> int:
    """Lock a free slot and return its number; the lock lasts until this process ends."""
    slots = [_open(str(number)) for number in range(jobs)]
    # One process polls the slots; the others queue in order of arrival.
    queue = _open("queue")
    fcntl.flock(queue, fcntl.LOCK_EX)
    while True:
        for number, slot in enumerate(slots):
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            os.close(queue)
            return number
        time.sleep(POLL_SECONDS)


def environment(slot: int) -> dict[str, str]:
    """Return the variables for the command in a slot."""
    # Compilers whose processes share an id would share the names of temporary files.
    folder = Path(os.environ.get("TMPDIR") or "/tmp", f"slot-{slot}")
    folder.mkdir(exist_ok=True)
    return os.environ | {"TMPDIR": str(folder), "LD_PRELOAD": os.environ.get("COMPILER_PRELOAD", "")}


def main(command: list[str]) -> int:
    """Run `command` in a slot, log it and return its exit code."""
    output = command[command.index("-o") + 1] if "-o" in command else ""
    number = take(int(os.environ.get("JOBS") or os.cpu_count() or 1))
    start = time.time()
    _, status, used = os.wait4(os.posix_spawnp(command[0], command, environment(number)), 0)
    row = (
        int(start * 1000),
        int(time.time() * 1000),
        number,
        output,
        f"{used.ru_utime + used.ru_stime:.2f}",
        used.ru_maxrss * 1024,
    )
    log = os.open(os.environ["SLOT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, ("\t".join(map(str, row)) + "\n").encode())
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

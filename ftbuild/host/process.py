"""Identity of a process: what other processes need to find out whether it still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PROC = Path("/proc")


def identity(pid: int | None = None) -> str:
    """Return host, boot, process namespace, id and start of a process (default: of this one); "" if unknown.

    Ids are used again, and containers count their own, so none of these alone names a process.
    """
    number = os.getpid() if pid is None else pid
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink().name.strip("pid:[]")
        return "/".join((socket.gethostname(), boot, namespace, str(number), _start(number)))
    except (OSError, ValueError, IndexError):
        return ""


def is_dead(owner: str) -> bool:
    """Return whether the process of an identity has ended; False for one that cannot be seen from here."""
    place, _, _ = owner.rpartition("/")
    number = place.rpartition("/")[2]
    own = identity()
    if not own or not number.isdecimal() or own.split("/")[:3] != owner.split("/")[:3]:
        return False
    return identity(int(number)) != owner


def _start(pid: int) -> str:
    """Return when a process began, in clock ticks since boot; ValueError for one that has ended (proc(5))."""
    fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ValueError("a process that has ended")
    return fields[19]

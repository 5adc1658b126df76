"""Durations and sizes for people."""

from __future__ import annotations

MIB = 1024**2
GIB = 1024**3


def duration(seconds: float) -> str:
    """Return seconds as text: `2 h 05 min`, `3 min 07 s`, `42 s`, `0.3 s`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def size(count: float) -> str:
    """Return bytes in decimal units with three digits, as `docker images` shows them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def gpus(count: int) -> str:
    """Return a number of GPUs: `1 GPU`, `2 GPUs`."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"

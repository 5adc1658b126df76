"""Texts that a command prints, or writes into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

OutFile = Annotated[Path | None, "file to write (default: standard output)"]


def write(text: str, out: Path | None) -> int:
    """Print a file's text, or write it there; ConfigError when that is not possible."""
    from ftbuild.errors import ConfigError

    if out is None:
        print(text, end="")
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as refused:
        raise ConfigError(f"cannot write --out: {refused.strerror}", where=str(out)) from refused
    print(f"wrote {out}")
    return 0

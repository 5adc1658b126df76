"""Texts that a command prints, or writes into a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from ftbuild.errors import ConfigError

OutFile = Annotated[Path | None, "file to write (default: standard output)"]


def write(text: str, out: Path | None) -> int:
    """Print a file's text, or write it there; ConfigError when that is not possible."""
    if out is None:
        print(text, end="")
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as refused:
        raise ConfigError(f"cannot write --out: {refused.strerror}", where=str(out)) from refused
    print(f"wrote {out}")
    return 0


def require_writable(out: Path | None, option: str = "--out") -> None:
    """Raise ConfigError where an option's file cannot be written, before the work whose result it gets."""
    if out is None:
        return
    if out.is_dir():
        raise ConfigError(f"{option} is a folder", where=str(out), hint="name a file in it")
    if not out.parent.is_dir():
        what = f"the folder of {option} does not exist"
        raise ConfigError(what, where=str(out.parent), hint="create it first")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise ConfigError(f"{option} cannot be written there", where=str(out))

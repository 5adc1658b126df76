"""Files that are there whole or not at all, whatever ends the program that writes them."""

from __future__ import annotations

from pathlib import Path


def write_atomic(file: Path, text: str) -> None:
    """Put `text` into `file`, whose folder is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)

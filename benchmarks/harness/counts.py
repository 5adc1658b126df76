"""Counts on command lines."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """Return the number, for argparse, which says what is wrong with any other text."""
    return _from(1, text)


def at_least_zero(text: str) -> int:
    """Return the number, for argparse, which says what is wrong with any other text."""
    return _from(0, text)


def _from(lower: int, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= lower):
        raise argparse.ArgumentTypeError(f"must be a number from {lower}, not {text!r}")
    return int(text)

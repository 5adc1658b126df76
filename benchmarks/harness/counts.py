"""Counts on command lines."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """Return the number, for argparse, which says what is wrong with any other text."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a number from 1, not {text!r}")
    return int(text)

"""Counts on the command lines of benchmarks."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.harness.counts import at_least_one


def test_a_count_is_one_or_more() -> None:
    assert [at_least_one(text) for text in ("1", "64")] == [1, 64]


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "²", "\u0661"])
def test_anything_else_is_refused_with_what_it_was(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a number from 1, not"):
        at_least_one(text)

"""When a client may come back to a full queue."""

from __future__ import annotations

import pytest

from ftserve.front.pace import LONGEST_SECONDS, Pace


def test_nobody_knows_before_the_first_answer() -> None:
    assert Pace().retry_seconds() == 5


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [([0.01], 1), ([2.2], 3), ([4.0] * 9, 4), ([3600.0], LONGEST_SECONDS), ([1.0] * 50 + [20.0], 3)],
    ids=["quick", "whole seconds", "steady", "at most what clients obey", "one long answer changes little"],
)
def test_as_long_as_answers_take_now(answers: list[float], seconds: int) -> None:
    pace = Pace()
    for answer in answers:
        pace.add(answer)
    assert pace.retry_seconds() == seconds


def test_it_follows_a_server_that_gets_slower() -> None:
    pace = Pace()
    for _ in range(100):
        pace.add(1.0)
    for _ in range(100):
        pace.add(12.0)
    assert pace.retry_seconds() in (11, 12)

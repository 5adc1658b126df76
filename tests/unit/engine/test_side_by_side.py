"""Works side by side: what they return, and how the first failure of one ends the others."""

from __future__ import annotations

import os
from functools import partial
from threading import Event
from typing import Any

import pytest

from ftbuild.engine import orphans, side_by_side
from ftbuild.errors import SmokeError
from ftbuild.host import shell

CLIENT: Any = None


@pytest.fixture
def containers_ended(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once the containers of this process are removed."""
    ended = Event()
    monkeypatch.setattr(orphans, "remove_own", lambda client: ended.set())
    return ended


@pytest.mark.parametrize("processors", [1, 3])
def test_the_first_failure_ends_the_others(
    processors: int, containers_ended: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread waits for is its container, whose end is its own."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))
    numbers = range(7)
    assert side_by_side.run(CLIENT, [partial(pow, number, 2) for number in numbers]) == [
        n**2 for n in numbers
    ]
    assert not containers_ended.is_set()

    def fail() -> bool:
        raise SmokeError("the converter failed")

    made: list[bool] = []
    waiting = [lambda: made.append(containers_ended.wait(20))] * 5
    with pytest.raises(SmokeError, match="the converter failed"):
        side_by_side.run(CLIENT, [fail, *waiting])
    assert containers_ended.is_set()
    assert len(made) <= processors
    assert all(made)


def test_ctrl_c_ends_their_programs_too(containers_ended: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """git, say, is in no container, and in a session of its own."""
    programs_ended = Event()
    monkeypatch.setattr(shell, "interrupt", programs_ended.set)

    def pressed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side.run(CLIENT, [pressed, lambda: None])
    assert containers_ended.is_set()
    assert programs_ended.is_set()

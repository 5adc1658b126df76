"""What processes of a test run share goes with the last of them, and what was there before stays."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from testing import once
from testing.waiting import SECONDS, until


def _use(folder: Path, go_on: Event, slow: float) -> None:
    """Make two files beside those that are there, and remove them slowly, one after the other."""
    things = folder / "things"

    def make() -> str:
        before = "\n".join(one.name for one in things.iterdir())
        for name in ("a", "b"):
            (things / name).touch()
        return before

    def remove(before: str) -> None:
        for thing in sorted(things.iterdir()):
            if thing.name not in before.split():
                thing.unlink()
                time.sleep(slow)

    with once.made(folder, "things", make, remove):
        go_on.wait(SECONDS)


def test_who_comes_while_the_last_one_removes_leaves_only_what_was_there_before(tmp_path: Path) -> None:
    (things := tmp_path / "things").mkdir()
    (things / "old").touch()
    fork = multiprocessing.get_context("fork")
    go_on = [fork.Event(), fork.Event()]
    first, second = (fork.Process(target=_use, args=(tmp_path, event, 0.3)) for event in go_on)
    first.start()
    assert until(lambda: (things / "b").exists())
    go_on[0].set()
    assert until(lambda: not (things / "a").exists())
    second.start()  # now half of it is removed
    first.join(SECONDS)
    assert until(lambda: (things / "a").exists())
    go_on[1].set()
    second.join(SECONDS)
    assert [one.name for one in things.iterdir()] == ["old"]


def test_who_comes_while_another_uses_it_makes_nothing(tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        with once.made(tmp_path, "one", lambda: made.append(1)), once.made(tmp_path, "other", lambda: None):
            assert (tmp_path / "one.ready").exists()
    assert made == [1, 1]  # the first was gone by then

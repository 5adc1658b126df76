"""What holds for all tests: Ctrl-C, the order in which files begin, parallel processes, garbage."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

import pytest

pytest_plugins = ["testing.skips", "testing.tidiness", "testing.costs"]

ENGINE = Path(__file__).parent / "engine"
# What makes the images for all, and the longest file, begin first.
FIRST = ("test_build.py", "test_nightly.py")
# Those that take a minute or more, the longest first: the end of a run names them.
LONGEST = (
    "test_builders.py",
    "test_smoke.py",
    "test_nightly_kill.py",
    "ftserve/test_hostile.py",
    "test_elsewhere.py",
    "ftserve/test_front.py",
    "test_nightly_stopped.py",
    "ftserve/test_serve.py",
    "test_model_repo.py",
    "test_promotion_kill.py",
)
# Where the engine's tests stand on the way through the others: the longest, those that make what they need,
# and those that need the built images, which a bare machine has after minutes. The last files of a run are
# short, so that all processes end at about the same time.
LONG, MAKE, NEED = (0.0, 0.4), (0.1, 0.6), (0.3, 0.8)

# A shell starts what runs in the background with SIGINT ignored. Children inherit that, and Python then never
# raises KeyboardInterrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The commands that tests start would compile every module again, in a third of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# A third of the time a test waits: for a program, a server or the engine.
PROCESSES_PER_CORE = 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes run the tests where nobody says it (`--numprocesses=auto`)."""
    return PROCESSES_PER_CORE * len(os.sched_getaffinity(0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, and have tests that wait for the engine among those that compute."""
    need_images = {item.path for item in items if "built" in getattr(item, "fixturenames", ())}
    places = order(dict.fromkeys(item.path for item in items), need_images)
    items.sort(key=lambda item: places[item.path])


def order(files: Iterable[Path], need_images: Set[Path]) -> dict[Path, float]:
    """Return the place of each file: the first below 0, the others from 0 to 1, each kind in its order."""
    first, longest = ([ENGINE / name for name in names] for names in (FIRST, LONGEST))
    found = [file for file in files if file not in first]
    long = [file for file in longest if file in found]
    others = [file for file in found if file not in long]
    ours = [file for file in others if ENGINE in file.parents]
    return {
        **{file: number - len(first) for number, file in enumerate(first)},
        **dict(_spread(long, LONG)),
        **dict(_spread([file for file in others if file not in ours], (0.0, 1.0))),
        **dict(_spread([file for file in ours if file not in need_images], MAKE)),
        **dict(_spread([file for file in ours if file in need_images], NEED)),
    }


def _spread(files: Sequence[Path], part: tuple[float, float]) -> Iterator[tuple[Path, float]]:
    begin, end = part
    for number, file in enumerate(files):
        yield file, begin + (end - begin) * (number + 0.5) / len(files)


def pytest_collection_finish() -> None:
    """Keep thousands of tests out of every search for garbage, which took a fifth of the unit tests' time."""
    gc.collect()
    gc.freeze()

"""What holds for all tests: Ctrl-C, the order in which files begin, parallel processes, garbage."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ["testing.skips", "testing.tidiness", "testing.costs"]

ENGINE = Path(__file__).parent / "engine"
# They last longest, so they begin first.
LONGEST = ("test_build.py", "test_nightly.py")

# A shell starts what runs in the background with SIGINT ignored. Children inherit that, and Python then never
# raises KeyboardInterrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The commands that tests start would compile every module again, in a third of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one more than there are processors: builds and registries are waited for most of the time."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, and let tests that need the built images come last.

    On a bare machine the first file takes minutes to make them; meanwhile the tests that need no engine run.
    """
    need_images = {item.path for item in items if "built" in getattr(item, "fixturenames", ())}

    def rank(item: pytest.Item) -> int:
        if ENGINE not in item.path.parents:
            return 2
        if item.path.name in LONGEST:
            return LONGEST.index(item.path.name)
        return 4 if item.path in need_images else 3

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Keep thousands of tests out of every search for garbage, which took a fifth of the unit tests' time."""
    gc.collect()
    gc.freeze()

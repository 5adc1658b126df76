"""More time for tests that wait for others than pyproject.toml gives each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def give(items: Iterable[pytest.Item], folder: Path, seconds: float) -> None:
    """Give each test below a folder so many seconds with its fixtures, unless it has a limit of its own."""
    for item in items:
        if item.path.is_relative_to(folder) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(seconds))

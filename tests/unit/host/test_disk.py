from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.errors import HostError
from ftbuild.host import disk


def test_too_little_room_is_an_environment_error_that_says_how_much_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    with pytest.raises(
        HostError, match=r"building 22\.12-sm80 needs 1048576 GiB of disk, .* GiB are free"
    ) as refused:
        disk.require(folder, 2**50, "building 22.12-sm80")
    assert refused.value.exit_code == 4
    assert str(tmp_path) in str(refused.value)
    assert "FTBUILD_WORK" in str(refused.value)


def test_enough_room_is_no_error(tmp_path: Path) -> None:
    disk.require(tmp_path, 1, "anything")

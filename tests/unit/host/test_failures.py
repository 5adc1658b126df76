from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ftbuild.errors import HostError, PinError
from ftbuild.host import failures


@pytest.mark.parametrize("failure", [FileNotFoundError(2, "gone", "/gone"), HostError("no engine")])
def test_what_fails_while_an_interrupt_cleans_up_is_an_interrupt(failure: Exception) -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise failure

    with pytest.raises(KeyboardInterrupt), failures.reported():
        interrupted()


def test_a_full_disk_is_an_environment_error_that_names_the_folder() -> None:
    with pytest.raises(HostError, match="the disk is full") as failed, failures.reported():
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp")
    assert failed.value.where == "/tmp"


def test_a_full_place_without_a_name_is_not_said_to_be_the_folder_that_is_here() -> None:
    with pytest.raises(HostError, match="the disk is full to which") as failed, failures.reported():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert failed.value.where is None
    assert " MB are free" not in str(failed.value)


def test_a_working_folder_that_is_gone_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(HostError, match="started no longer exists") as failed, failures.reported():
        Path("file").absolute()
    assert "cd" in str(failed.value.hint)


def test_other_failures_stay_what_they_are() -> None:
    with pytest.raises(PinError), failures.reported():
        raise PinError("not pinned")
    with pytest.raises(ConnectionResetError), failures.reported():
        raise ConnectionResetError(errno.ECONNRESET, "reset")

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ftbuild.errors import HostError
from ftbuild.host.files import atomic_file, atomic_folder, write_atomic
from testing import ROOT
from testing.waiting import until

# Writes two contents in turn, each a megabyte of one digit.
TURNS = """
import sys
from pathlib import Path
from ftbuild.host.files import write_atomic
while True:
    for digit in "01":
        write_atomic(Path(sys.argv[1]), digit * 2**20)
"""
# Gets half way through a write and stays there.
HALF = """
import sys, time
from pathlib import Path
from ftbuild.host import files
with getattr(files, sys.argv[2])(Path(sys.argv[1])) as partial:
    (partial if sys.argv[2] == "atomic_file" else partial / "first").write_text("half")
    print("half", flush=True)
    time.sleep(60)
"""


def child(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_half_way(path: Path, function: str) -> None:
    with child(HALF, str(path), function) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        writer.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("content", ["text: ä\n", b"\x00\xff"])
def test_text_and_bytes_are_written_into_a_folder_that_is_made(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "new" / "file"
    write_atomic(file, content)
    assert file.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(file.parent.iterdir()) == [file]


def test_a_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    write_atomic(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_two_writers_at_once_never_fail_and_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "file"
    writers = [child(TURNS, str(file)) for _ in range(2)]
    assert until(file.exists)
    for _ in range(200):
        text = file.read_text()
        assert len(text) == 2**20
        assert text in ("0" * 2**20, "1" * 2**20)
    assert [writer.poll() for writer in writers] == [None, None]
    for writer in writers:
        writer.kill()
        writer.communicate(timeout=100)


def test_a_write_that_is_under_way_is_no_leftover(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with atomic_file(file) as partial:
        partial.write_text("first")
        write_atomic(file, "second")
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("make", [atomic_file, atomic_folder])
def test_what_is_renamed_is_on_the_disk_before_and_the_new_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    path, synced = tmp_path / "name", []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append((str(Path(f"/proc/self/fd/{fd}").readlink()), path.exists()))
    )
    with make(path) as partial:
        inside = partial if make is atomic_file else partial / "inside"
        inside.write_text("content")
    assert (str(inside), False) in synced
    assert synced[-1] == (str(tmp_path), True)


def test_a_kill_in_the_middle_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for _ in range(5):
        with child(TURNS, str(file)) as writer:
            assert until(lambda: writer.poll() is not None or file.exists())
            assert writer.poll() is None
            time.sleep(0.05)
            writer.send_signal(signal.SIGKILL)
        assert file.read_text() in ("0" * 2**20, "1" * 2**20)


def test_a_kill_half_way_leaves_the_old_file_and_the_next_write_cleans_up(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    killed_half_way(file, "atomic_file")
    assert file.read_text() == "old"
    write_atomic(file, "new")
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_kill_half_way_leaves_no_folder_and_the_next_write_starts_anew(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    killed_half_way(folder, "atomic_folder")
    assert not folder.exists()
    with atomic_folder(folder) as partial:
        (partial / "second").write_text("whole")
    assert [path.name for path in folder.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [folder]


def test_an_error_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    def fail_after_writing(partial: Path) -> None:
        partial.write_text("new")
        raise KeyError

    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    with pytest.raises(KeyError), atomic_file(file) as partial:
        fail_after_writing(partial)
    with pytest.raises(KeyError), atomic_folder(folder) as partial:
        fail_after_writing(partial / "first")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"), atomic_folder(folder) as partial:
        (partial / "other").write_text("other")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_a_place_that_cannot_be_written_is_an_environment_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="report cannot be written") as refused:
        write_atomic(tmp_path / "file" / "report", "")
    assert str(tmp_path / "file") in str(refused.value)
    with pytest.raises(HostError, match="out cannot be written"), atomic_folder(tmp_path / "file" / "out"):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(**options: str) -> str:
        (tmp_path / "place").mkdir()
        (tmp_path / "place" / "report").symlink_to("/dev/full")
        return str(tmp_path / "place")

    monkeypatch.setattr("tempfile.mkdtemp", on_a_full_disk)
    with pytest.raises(HostError, match="the disk is full"):
        write_atomic(tmp_path / "report", "text")

"""How much of a folder is written: its size, when it last grew, and the bar of a terminal."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from ftbuild.models import progress


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_all_files_count_and_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    (folder / "a/b").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "big").write_bytes(bytes(1000))
    for name, size in (("one", 1), ("a/two", 20), ("a/b/three", 300)):
        (folder / name).write_bytes(bytes(size))
    (folder / "folder").symlink_to(elsewhere)
    (folder / "file").symlink_to(elsewhere / "big")
    os.mkfifo(folder / "pipe")
    assert progress.size(folder) == 321
    assert progress.size(tmp_path / "nothing") == 0


def test_a_folder_that_vanishes_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(10))
    read = os.scandir

    def scan(path: str) -> object:
        if path.endswith("/b"):
            raise FileNotFoundError(path)
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan)
        assert progress.size(tmp_path) == 20


def test_a_watch_tells_since_when_a_folder_has_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watch = progress.Watch(tmp_path)
    seconds = []
    for now, size in ((101.0, 0), (103.0, 0), (110.0, 5), (111.5, 5), (200.0, 7)):
        clock[0] = now
        (tmp_path / "file").write_bytes(bytes(size))
        seconds.append(watch())
    assert seconds == [0, 2, 0, 1.5, 0]


def test_a_terminal_gets_a_bar_with_bytes_rate_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for name, value in (("COLUMNS", "120"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 4_000_000, lines.append) as tick:
        (tmp_path / "file").write_bytes(bytes(1_000_000))
        tick()
    drawn = terminal.getvalue()
    assert "converting" in drawn
    assert "1.0/4.0 MB" in drawn
    assert "0:00:00" in drawn
    assert "━" in drawn
    assert lines == []


def test_lines_come_at_each_tenth_once(tmp_path: Path) -> None:
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 100, lines.append) as tick:
        for size in (9, 10, 19, 20, 55, 59, 60, 99, 150):
            (tmp_path / "file").write_bytes(bytes(size))
            tick()
    assert [line.split(" %")[0] for line in lines] == [
        f"converting: {percent}" for percent in (10, 20, 55, 60, 99, 100)
    ]


def test_the_sizes_are_in_gigabytes(tmp_path: Path) -> None:
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 3_000_000_000, lines.append) as tick:
        with (tmp_path / "file").open("wb") as file:
            file.truncate(1_500_000_000)
        tick()
    assert lines[0].startswith("converting: 50 %, 1.5 of 3.0 GB, ")


def test_nothing_to_write_is_written_at_once(tmp_path: Path) -> None:
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 0, lines.append) as tick:
        tick()
        (tmp_path / "file").write_bytes(b"1")
        tick()
    assert [line.split(",")[0] for line in lines] == ["converting: 100 %"]

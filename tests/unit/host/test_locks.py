"""Two commands on one cell: the second one says for what it waits, and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftbuild.errors import HostError
from ftbuild.host import locks, marker
from testing import ROOT

HOLD = """
import sys, time
from pathlib import Path
from ftbuild.host import locks
with locks.cell(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def held(folder: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that works on a cell."""
    command = [sys.executable, "-c", HOLD, str(folder), str(seconds), "https://me:s3cret-word@host"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_command_waits_for_another_one_and_says_for_which(tmp_path: Path) -> None:
    said: list[str] = []
    with held(tmp_path, 1.5) as other, locks.cell(tmp_path, said.append) as waited:
        assert waited
    (line,) = said
    assert line.startswith("another command is working on this cell: waiting up to 600 s for it")
    if Path("/proc/locks").exists():
        assert f"(process {other.pid}: {sys.executable} " in line
    assert "s3cret-word" not in line


def test_a_command_that_waits_in_vain_names_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SECONDS", 0.2)
    begun = time.monotonic()
    with held(tmp_path, 60) as other:
        waiting = locks.cell(tmp_path, lambda line: None, "base open")
        with pytest.raises(HostError, match="another command is working on base open") as late, waiting:
            pass
        if Path("/proc/locks").exists():
            assert f"process {other.pid}" in late.value.what
    assert time.monotonic() - begun < 30
    assert late.value.exit_code == 4


def test_threads_of_one_command_wait_for_each_other_in_silence(tmp_path: Path) -> None:
    """No user waits for another command: patches of one source are fetched side by side."""
    said: list[str] = []

    def work(_: int) -> None:
        with locks.held(tmp_path / "lock", said.append, "waiting for another build", threads=True):
            time.sleep(0.2)

    with ThreadPoolExecutor(3) as pool:
        begun = time.monotonic()
        assert list(pool.map(work, range(3))) == [None] * 3
    assert time.monotonic() - begun >= 0.6
    if Path("/proc/locks").exists():
        assert said == []


def test_a_command_alone_neither_waits_nor_speaks(tmp_path: Path) -> None:
    said: list[str] = []
    with locks.cell(tmp_path / "cell", said.append) as waited:
        assert not waited
    assert said == []
    assert marker.is_on(tmp_path / "cell")
    assert locks.holder(tmp_path / "cell" / locks.NAME) == ""

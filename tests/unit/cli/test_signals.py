"""Signals that end a command: what it cleans up, and its exit code."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testing import ROOT
from testing.waiting import until

# Cleans up for a while, and says so before and after.
PROGRAM = """
import os, sys, time
from pathlib import Path
from ftbuild.cli.command import command

def body() -> None:
    try:
        print("working", flush=True)
        time.sleep(60)
    finally:
        Path(sys.argv[1], "cleaning").touch()
        time.sleep(0.3)
        print("cleaned")
        Path(sys.argv[1], "cleaned").touch()

command()(body)(None)
"""


def started(
    folder: Path, terminal: int, before: Callable[[], object] | None = None
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        # The tests themselves may run under nohup, whose children ignore the signal too.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if before:
            before()

    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=prepare,
    )


def await_file(file: Path) -> None:
    assert until(file.exists), file


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_twice_cleans_up_once(tmp_path: Path, sign: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    child = started(tmp_path, theirs)
    assert os.read(ours, 100).startswith(b"working")
    child.send_signal(sign)
    await_file(tmp_path / "cleaning")
    child.send_signal(sign)
    assert child.wait(100) == 130
    assert (tmp_path / "cleaned").exists()
    os.close(ours)
    os.close(theirs)


def test_a_command_whose_terminal_is_closed_cleans_up(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    child = started(tmp_path, theirs, lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(theirs)
    assert os.read(ours, 100).startswith(b"working")
    os.close(ours)
    assert child.wait(100) == 130
    assert (tmp_path / "cleaned").exists()


def test_nohup_is_respected(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    child = started(tmp_path, theirs, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert os.read(ours, 100).startswith(b"working")
    child.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert not (tmp_path / "cleaning").exists()
    child.terminate()
    assert child.wait(100) == 130
    os.close(ours)
    os.close(theirs)

"""Ctrl-C, as a user presses it: said within a second, over within five, whatever a command does then."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from ftbuild.cli.command import Command
from testing import ROOT, terminals
from testing.terminals import CTRL_C, OVER_SECONDS, SAID_SECONDS, Terminal
from testing.waiting import until

# Writes as fast as it can, and ends at the second interrupt only, or at none.
FLOOD = """
import signal, sys
came = []
def interrupted(number, frame):
    came.append(number)
    if len(came) > 1:
        sys.exit(1)
signal.signal(signal.SIGINT, interrupted)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, interrupted)
while len(came) < 2 or "stubborn" in sys.argv:
    try:
        sys.stdout.write("x" * 4000 + "\\r\\n")
    except BaseException:
        pass
"""
WORK = {
    "a program on a terminal": "shell.stream_terminal(flood, log=Path('log'))",
    "a stubborn program on a terminal": "shell.stream_terminal([*flood, 'stubborn'], log=Path('log'))",
    "a program with a log": "shell.stream(flood, log=Path('log'))",
    "a stubborn program with a log": "shell.stream([*flood, 'stubborn'], log=Path('log'))",
    "a program that is waited for": "shell.run(flood)",
    "programs of threads": """with ThreadPoolExecutor(3) as pool:
        try:
            list(pool.map(lambda name: shell.stream(flood, log=Path(name)), 'abc'))
        except KeyboardInterrupt:
            shell.interrupt()
            raise""",
    "a thread that waits for a server": """with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 60).result()""",
    "a clean-up that takes too long": """try:
        print("in the block", flush=True)
        time.sleep(60)
    finally:
        time.sleep(60)""",
}
# Ten times what pipes and terminals hold.
FILLED = 1_000_000
PROGRAM = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ftbuild.cli.command import command
from ftbuild.host import shell

flood = [sys.executable, "-c", sys.argv[1]]

def body() -> None:
    print("working", flush=True)
    {work}

command()(body)(None)
"""


@contextlib.contextmanager
def started(work: str, folder: Path) -> Iterator[Terminal]:
    program = [sys.executable, "-c", PROGRAM.format(work=work), FLOOD]
    with terminals.started(program, folder, {**os.environ, "PYTHONPATH": str(ROOT)}) as terminal:
        yield terminal


def written(folder: Path) -> int:
    """Bytes of the logs in a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


def left_over(folder: Path) -> list[str]:
    """The processes that still run in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and (place / "cwd").readlink() == folder:
                found.append(place.name)
    return found


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_ctrl_c_is_said_within_a_second_and_over_within_five(work: str, tmp_path: Path) -> None:
    with started(work, tmp_path) as terminal:
        assert until(lambda: terminal.time_of(b"working"))
        # The flood fills what lies between.
        if "log=" in work:
            assert until(lambda: written(tmp_path) > FILLED)
        else:
            time.sleep(0.2)
        pressed = terminal.press(CTRL_C)
        assert terminal.process.wait(30) == 130
        over = time.monotonic()
        said = terminal.time_of(b"interrupted: ")
        assert said is not None
        assert said - pressed < SAID_SECONDS
        assert over - pressed < OVER_SECONDS
        assert until(lambda: terminal.time_of(b"the same command resumes"))
    assert until(lambda: not left_over(tmp_path), 5)


def test_a_second_ctrl_c_ends_a_command_at_once_with_the_same_code(tmp_path: Path) -> None:
    with started(WORK["a clean-up that takes too long"], tmp_path) as terminal:
        assert until(lambda: terminal.time_of(b"in the block"))
        terminal.press(CTRL_C)
        assert until(lambda: terminal.time_of(b"interrupted: "))
        time.sleep(0.6)
        pressed = terminal.press(CTRL_C)
        assert terminal.process.wait(30) == 130
        assert time.monotonic() - pressed < SAID_SECONDS


def test_ctrl_c_that_comes_twice_at_once_does_not_cut_off_the_clean_up(tmp_path: Path) -> None:
    work = """try:
        print("in the block", flush=True)
        time.sleep(60)
    finally:
        time.sleep(1)
        print("cleaned")"""
    with started(work, tmp_path) as terminal:
        # Before the block there would be nothing to clean up.
        assert until(lambda: terminal.time_of(b"in the block"))
        terminal.press(CTRL_C + CTRL_C)
        assert terminal.process.wait(30) == 130
        assert until(lambda: terminal.time_of(b"cleaned"))


@pytest.mark.parametrize("member", [m for group in tasks.namespace.groups.values() for m in group], ids=str)
def test_every_command_ends_by_the_same_rules(
    member: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **values: object) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
        return 0

    ends: list[float] = []
    monkeypatch.setattr("ftbuild.host.signals._end_late", lambda: ends.append(time.monotonic()))
    monkeypatch.setattr("ftbuild.host.signals._Came.number", None)
    monkeypatch.setattr(member, "function", interrupted)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(type(member.signature), "arguments", lambda signature, values: {})
    try:
        with pytest.raises(SystemExit) as ended:
            member(None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value.code == 130
    assert until(lambda: ends)
    assert capfd.readouterr().err.count("interrupted: ") == 2

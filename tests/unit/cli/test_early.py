"""Signals in the first tenths of a second of `invoke`, while Python imports modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testing import ROOT
from testing.waiting import until

SAID = "interrupted: the same command resumes\n"
# What pip makes of invoke's entry point, but for the line that bootstrap changes (test_bootstrap.py).
SCRIPT = """#!{python}
import re
import sys
from ftbuild.cli.start import program
if __name__ == '__main__':
    sys.exit(program.run())
"""
# Imported for the first time by what it stands for, and slow.
SLOW = """
import sys, time
from pathlib import Path
Path({mark!r}).touch()
time.sleep(60)
"""


def by_script(folder: Path) -> list[str]:
    """The program as bootstrap leaves it."""
    script = folder / "invoke"
    script.write_text(SCRIPT.format(python=sys.executable))
    return [sys.executable, str(script), "--search-root", str(ROOT)]


def by_module(folder: Path) -> list[str]:
    """The program as pip leaves it, in a checkout whose first modules are ours."""
    for name in ("tasks.py", "benchmarks", "testing"):
        (folder / "modules" / name).symlink_to(ROOT / name)
    return [sys.executable, "-m", "invoke", "--search-root", str(folder / "modules")]


# Runs a program whatever this process does with signals, but for one that is ignored. Between fork and exec,
# as Popen offers it, threads of libraries that other tests have loaded may end the program (gRPC's do).
PREPARED = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN if str(int(number)) == sys.argv[1] else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""
# The module that is slow.
STARTS = {
    "Invoke is imported": (by_script, "invoke"),
    "tasks.py imports its modules": (by_module, "ftserve"),
}


def started(
    start: Callable[[Path], list[str]], slow: str, folder: Path, ignored: int | None = None
) -> subprocess.Popen[str]:
    """Start `invoke matrix`, and return when it imports the slow module."""
    mark = folder / "importing"
    (folder / "modules").mkdir()
    (folder / "modules" / f"{slow}.py").write_text(SLOW.format(mark=str(mark)))
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PREPARED,
            str(int(ignored or 0)),
            *start(folder),
            "matrix",
            "--triton",
            "22.12",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "modules")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert until(lambda: mark.exists() or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    return child


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("start", STARTS)
def test_a_signal_while_modules_are_imported_ends_with_130_and_one_line(
    start: str, sign: signal.Signals, tmp_path: Path
) -> None:
    child = started(*STARTS[start], tmp_path)
    child.send_signal(sign)
    out, told = child.communicate(timeout=20)
    assert (child.returncode, out, told) == (130, "", SAID)


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    child = started(*STARTS["Invoke is imported"], tmp_path, signal.SIGHUP)
    child.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    child.communicate()


def test_programs_other_than_invoke_keep_their_own_answers_to_signals() -> None:
    program = "import signal, ftbuild.cli; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"

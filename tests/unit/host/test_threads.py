"""Calls side by side, and Ctrl-C while they are being started."""

from __future__ import annotations

import subprocess
import sys
import time

from testing import ROOT

PROGRAM = """
from functools import partial
from ftbuild.host import shell, threads

class Interrupted(list):
    def __iter__(self):
        yield self[0]
        raise KeyboardInterrupt

threads.results(Interrupted([partial(shell.run, ["sleep", "60"])]))
"""


def test_ctrl_c_before_all_calls_have_started_ends_those_that_have() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert time.monotonic() - start < 30

"""What one registry for all processes of a test run leaves, whatever becomes of the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ftbuild.host import shell
from testing.base_registry import GUARDED
from testing.waiting import until


def started(run: int, folder: Path, *argv: str) -> int:
    """Start a guarded program for a test run, and return its number."""
    done = shell.run(["sh", "-c", GUARDED, str(folder / "log"), *argv], env={"TEST_RUN": str(run)})
    return int(done.stdout)


def lives(number: int) -> bool:
    """Return whether a program runs: one that has ended and was not waited for has no command line."""
    try:
        return bool(Path(f"/proc/{number}/cmdline").read_bytes())
    except OSError:
        return False


def test_what_is_shared_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as run:
        number = started(run.pid, tmp_path, "sh", "-c", "echo said; exec sleep 100")
        assert until(lambda: "said" in (tmp_path / "log").read_text())
        assert lives(number)
        run.kill()
        run.wait()
        assert until(lambda: not lives(number))


def test_nothing_is_left_of_what_has_ended_before_the_run(tmp_path: Path) -> None:
    number = started(os.getpid(), tmp_path, "sleep", "0.1")
    assert until(lambda: not lives(number))
    mark = f"TEST_RUN={os.getpid()}\0".encode()

    def guards() -> list[str]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (place / "environ").read_bytes():
                    found.append(place.name)
            except OSError:
                continue
        return found

    assert until(lambda: not guards())

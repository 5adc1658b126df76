"""What a test run leaves behind: temporary files never; what else there is, is named, and fails it in CI."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testing import ROOT

TESTS = """
import os, subprocess, sys, tempfile
from pathlib import Path

def test_that_leaves_things(tmp_path):
    (tmp_path / "layer").write_bytes(b"x" * 1000)
    Path(tempfile.mkdtemp(), "file").touch()
    subprocess.run([sys.executable, "-c", "import tempfile; tempfile.mkdtemp()"], check=True)
    (Path.home() / ".cache" / "other").mkdir(parents=True)
    stray = "import os, tempfile; tempfile.mkdtemp(prefix='stray-', dir=os.environ['SYSTEM'])"
    subprocess.run([sys.executable, "-c", stray], check=True)

def test_that_fails(tmp_path):
    (tmp_path / "evidence").touch()
    assert not os.environ.get("FAILS")
"""
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
OURS = [f"--override-ini={name}={SETTINGS[name]}" for name in SETTINGS if name.startswith("tmp_path_")]


LEAVES_A_PROGRAM = """
import subprocess, sys

def test_that_leaves_a_program():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)  # the one that is left"])
"""


def run(folder: Path, text: str, processes: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the plugin, in a home and a folder for temporary files of its own."""
    home, temporary, tests = (folder / name for name in ("home", "temporary", "tests"))
    for each in (home / ".cache" / "ftbuild", temporary, tests):
        each.mkdir(parents=True)
    (tests / "test_it.py").write_text(text)
    others = ("PYTEST", "XDG", "CI")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take longer to load than these tests take
    env = {**plain, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "testing.tidiness", "-p", "xdist", *OURS),
            *(f"--numprocesses={processes}", "--rootdir", str(tests), str(tests)),
        ],
        cwd=tests,
        env={**env, "SYSTEM": str(temporary), "DOCKER_HOST": "unix:///nowhere", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("variables", [{}, {"FAILS": "yes"}, {"CI": "true"}], ids=["passes", "fails", "CI"])
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_run_leaves_no_temporary_files_and_names_what_else_it_leaves(
    tmp_path: Path, variables: dict[str, str], processes: str
) -> None:
    done = run(tmp_path, TESTS, processes, **variables)
    assert done.returncode == (1 if variables else 0), done.stdout + done.stderr
    assert "2 things are left behind" in done.stdout
    assert f"temporary {tmp_path / 'temporary'}/stray-" in done.stdout
    assert f"at home {tmp_path / 'home' / '.cache' / 'other'}" in done.stdout
    left = {path.name for path in (tmp_path / "temporary").rglob("*") if path.is_file()}
    assert "evidence" in left if "FAILS" in variables else not left
    assert "layer" not in left


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_program_that_is_left_fails_the_run(
    tmp_path: Path, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTBUILD_TEST_RUN", "")  # that of this run would find it too
    done = run(tmp_path, LEAVES_A_PROGRAM, processes)
    found = re.search(r"process (\d+): .*the one that is left", done.stdout)
    assert found, done.stdout + done.stderr
    os.kill(int(found[1]), signal.SIGKILL)
    assert done.returncode == 1
    assert "1 things are left behind" in done.stdout

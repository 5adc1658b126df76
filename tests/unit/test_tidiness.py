"""What a test run leaves behind: temporary files never, and what else there is, is named."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("fails", ["", "yes"])
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_run_leaves_no_temporary_files_and_names_what_else_it_leaves(
    tmp_path: Path, fails: str, processes: str
) -> None:
    home, temporary, tests = (tmp_path / name for name in ("home", "temporary", "tests"))
    for folder in (home / ".cache" / "ftbuild", temporary, tests):
        folder.mkdir(parents=True)
    (tests / "test_it.py").write_text(TESTS)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "XDG"))}
    env = {**plain, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "FAILS": fails}
    env |= {"SYSTEM": str(temporary)}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "testing.tidiness", "-p", "no:cacheprovider"),
            *(*OURS, f"--numprocesses={processes}", "--rootdir", str(tests), str(tests)),
        ],
        cwd=tests,
        env={**env, "DOCKER_HOST": "unix:///nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if fails else 0), done.stdout + done.stderr
    assert "2 things are left behind" in done.stdout
    assert f"temporary {temporary}/stray-" in done.stdout
    assert f"at home {home / '.cache' / 'other'}" in done.stdout
    left = {path.name for path in temporary.rglob("*") if path.is_file()}
    assert "evidence" in left if fails else not left
    assert "layer" not in left

"""Commands in forks, as most tests run them, against the program that a user starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT, forked

NOWHERE = {"DOCKER_HOST": "unix:///nowhere"}


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("--list",), {}),
        (("--help", "build"), {}),
        (("bulid",), {}),  # codespell:ignore bulid
        (("build", "--sm", "80", "--triton", "22.12", "--dry-run"), {}),
        (("build", "--sm", "80", "--triton", "22.12"), {}),
        # Options take their defaults from these when their modules are loaded.
        (("matrix",), {"FTBUILD_CONFIG": "buildcfg/sample"}),
        (("publish",), {"FTBUILD_REGISTRY": "https://ada:secret@h.invalid/x"}),
    ],
    ids=str,
)
def test_a_fork_says_what_the_program_says(arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    env = {**os.environ, **NOWHERE, **variables}
    command = [sys.executable, "-m", "invoke", *arguments]
    program = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    fork = forked.invoke(*arguments, env=env)
    assert (fork.returncode, fork.stdout, fork.stderr) == (program.returncode, program.stdout, program.stderr)


def test_forks_know_nothing_of_each_other(tmp_path: Path) -> None:
    other = forked.invoke("dev.ci", "--out", ".", cwd=tmp_path, env={**os.environ, "FTBUILD_TRITON": "x"})
    assert other.returncode == 0, other.stderr
    assert (tmp_path / ".gitlab-ci.yml").exists()
    assert forked.invoke("matrix").returncode == 0
    assert Path.cwd() != tmp_path


def test_one_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run", timeout=0.001)
    assert forked.invoke("--list").returncode == 0

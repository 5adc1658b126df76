"""The cookbook's commands: those with a dry run make their plan, the others get past their options."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from testing import ROOT, forked

TEXT = (ROOT / "docs" / "cookbook.md").read_text()
COMMANDS = [line.strip() for line in TEXT.splitlines() if line.startswith("    invoke ")]
# Their options are read before anything is looked for: a folder or an engine that is not there ends them so.
LOOKED_FOR = (2, 4)
# What a command line that is wrong in itself ends with, also with 2.
WRONG_USAGE = ("error: unknown", "error: --", "error: convert needs")


def run(command: str, *more: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of the cookbook in a folder that holds nothing, on a machine without an engine."""
    _, *words = shlex.split(command)
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere"}
    return forked.invoke(*words, *more, cwd=folder, env=environment)


def test_every_story_has_its_commands() -> None:
    stories = TEXT.split("\n## ")[1:]
    assert len(stories) == 5
    for story in stories:
        assert "\nBefore: " in story
        assert "\n    invoke " in story


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_gets_past_its_options(command: str, tmp_path: Path) -> None:
    task = command.split()[1]
    dry = ["--dry-run"] if task in ("build", "convert") else []
    done = run(command, *dry, folder=tmp_path)
    if task in ("build", "matrix"):
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode in (*LOOKED_FOR, 9), done.stderr
        assert done.stderr.startswith("error: "), done.stderr
        assert "Traceback" not in done.stderr
        assert not done.stderr.startswith(WRONG_USAGE), done.stderr


def test_a_command_that_does_not_exist_is_found(tmp_path: Path) -> None:
    for wrong in ("invoke compose --out x", "invoke serve --bogus", "invoke convert --model gpt"):
        assert run(wrong, folder=tmp_path).stderr.startswith(WRONG_USAGE), wrong
